"""What a virtual machine of the lab is, and that such a lab comes and goes without a trace."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
from pathlib import Path

import labs
import pytest
import vms

from provision.ansible_env import clean_environment
from provision.lab import computer

# Emulated machines take an hour for all of these.
pytestmark = pytest.mark.night


def test_machines_have_kernels_and_clocks_and_control_groups_of_their_own(vm_lab: vms.VmLab) -> None:
    for machine in vm_lab.machines:
        release, virtual, groups, container = vm_lab.root(
            machine,
            "uname -r; systemd-detect-virt --vm; stat --file-system --format=%T /sys/fs/cgroup;"
            " systemd-detect-virt --container",
            check=False,
        ).splitlines()
        assert release != platform.release()
        assert virtual in ("qemu", "kvm")
        assert (groups, container) == ("cgroup2fs", "none")
    assert len({vm_lab.boot_id(machine) for machine in vm_lab.machines}) == 3


def test_a_machine_shares_nothing_of_this_computer_but_its_own_keys(vm_lab: vms.VmLab) -> None:
    for machine in vm_lab.machines:
        assert vm_lab.root(machine, "findmnt --noheadings --types 9p --output TARGET") == "/etc/clusterctl-lab"


def test_a_second_lab_comes_and_goes_and_a_killed_one_breaks_nothing(vm_lab: vms.VmLab) -> None:
    name = "t-vm-second"
    wanted = {
        "lab_machines_name": name,
        "lab_machines_kind": "vm",
        "lab_machines_compute": 1,
        "lab_machines_vm_memory": 1024,
    }
    playbook = labs.content.playbook("lab_up")
    words = [labs.BIN / "ansible-playbook", playbook, "-i", "localhost,", "-e", json.dumps(wanted)]
    before = computer.running(vm_lab.name)
    killed = subprocess.Popen(
        [str(word) for word in words],
        env=clean_environment(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        # Between the first machine's start and the second one's, or soon after.
        labs.until(lambda: bool(computer.running(name)) or killed.poll() is not None, "no machine was started")
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()

        labs.run(words, timeout=vms.LIMIT)

        second = vms.VmLab(name, 1)
        assert second.root("node1", "hostname") == "node1"
        assert second.boot_id("node1") != vm_lab.boot_id("node1")
        second.root("node1", "nohup poweroff >/dev/null 2>&1 &")
        labs.until(lambda: "node1" not in computer.running(name), "node1 does not switch itself off")
        states = json.loads(labs.clusterctl("lab", "status", name, "--json").stdout)["machines"]
        assert [(machine["name"], machine["state"]) for machine in states] == [("head", "running"), ("node1", "exited")]
    finally:
        labs.down(name)

    assert computer.running(name) == {}
    assert not second.directory.exists()
    assert [line for line in labs.docker("network", "ls", "--format", "{{.Name}}").split() if name in line] == []
    assert computer.running(vm_lab.name) == before


def test_a_machine_that_a_handler_reboots_comes_back_once_and_the_run_goes_on(
    vm_lab: vms.VmLab, tmp_path: Path
) -> None:
    boot, boots = vm_lab.boot_id("node1"), vm_lab.boots("node1")
    keys = vm_lab.root("node1", "cat /etc/ssh/ssh_host_ed25519_key.pub /etc/machine-id")
    play = tmp_path / "reboot.yml"
    play.write_text(
        """---
- hosts: node1
  become: true
  gather_facts: false
  tasks:
    - name: Change something
      ansible.builtin.copy: {content: "{{ mark }}", dest: /var/lib/clusterctl/mark, mode: "0600"}
      notify: Reboot
    - name: Act on it
      ansible.builtin.meta: flush_handlers
    - name: Go on
      ansible.builtin.slurp: {src: /var/lib/clusterctl/mark}
      register: left
    - name: Tell
      ansible.builtin.debug: {msg: "left {{ left.content | b64decode }}"}
  handlers:
    - name: Reboot
      ansible.builtin.reboot: {reboot_timeout: 900}
""",
        encoding="utf-8",
    )

    command = [labs.BIN / "ansible-playbook", play, "-i", vm_lab.inventory, "-e", f"mark={boot}"]
    done = labs.run(command, cwd=labs.content.ROOT, timeout=vms.LIMIT)
    again = labs.run(command, cwd=labs.content.ROOT, timeout=vms.LIMIT)

    assert f"left {boot}" in done.stdout
    assert "RUNNING HANDLER" not in again.stdout
    assert vm_lab.boot_id("node1") != boot
    assert vm_lab.boots("node1") == boots + 1
    assert vm_lab.root("node1", "cat /etc/ssh/ssh_host_ed25519_key.pub /etc/machine-id") == keys
    assert vm_lab.root("node1", "ls /dev | grep -c 'nvidia[0-9]'") == "2"
    assert vm_lab.root("node1", "rdma link show rxe0/1 | grep -c ACTIVE") == "1"
    labs.until(
        lambda: "Up" in vm_lab.root("node1", "docker ps --filter name=slurmd --format '{{.Status}}'"), "no slurmd"
    )
    assert vm_lab.root("node1", "systemctl is-active munge docker").split() == ["active", "active"]
    # Slurm keeps a node out that has rebooted by itself, once its slurmd has said so.
    labs.until(lambda: "DOWN" in vm_lab.node("node1").state, "slurmctld was not told of the reboot")
    labs.clusterctl("provision", vm_lab.inventory, "slurm", timeout=vms.LIMIT)
    vm_lab.wait_free("node1")
