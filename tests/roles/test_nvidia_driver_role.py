"""The stage gpu: what it costs without GPUs, and that a driver is changed in batches behind a first machine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from provision import content
from provision.ansible_env import clean_environment

HOST = "ansible_connection=local ansible_become=false ansible_python_interpreter={python}"

#: The role's parts as the playbook uses them, with the inventory's word for what a machine needs and whether it works.
STUB = {
    "plan.yml": """
- name: Decide
  ansible.builtin.set_fact:
    __nvidia_driver_state:
      plan: {skip: "{{ '' if needs is defined else 'no GPU' }}", pending: "{{ [needs | default('')] | select }}"}
""",
    "main.yml": """
- name: Change it
  ansible.builtin.fail:
    msg: it does not come up
  when: broken is defined
""",
}
#: And those of which nothing is another here.
REAL = ("sort.yml", "begin.yml", "through.yml")
#: This computer need be none that preflight has nothing against: it is not asked for that.
AS_IT_IS = ("-e", "__observed_then=act")


def stage(
    directory: Path, hosts: dict[str, str], *words: str, stub: bool = False, playbook: str = "gpu"
) -> subprocess.CompletedProcess[str]:
    inventory = directory / "inventory.ini"
    lines = [f"{name} {HOST.format(python=sys.executable)} {extra}" for name, extra in hosts.items()]
    head = f"[slurm_controller]\nhead {HOST.format(python=sys.executable)}\n[all:vars]\ncluster_name=small\n"
    inventory.write_text(head + "[slurm_compute]\n" + "\n".join(lines) + "\n")
    environment = {**clean_environment(), "ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    if stub:
        tasks = directory / "roles/nvidia_driver/tasks"
        tasks.mkdir(parents=True)
        for name, text in STUB.items():
            (tasks / name).write_text("---" + text)
        for name in REAL:
            shutil.copy(content.ROOT / "roles/nvidia_driver/tasks" / name, tasks)
        # The plays that are about the driver; those after them are other roles' business.
        plays = [play for play in yaml.safe_load(content.playbook("gpu").read_text()) if "hosts" in play]
        plays[0]["hosts"] = "slurm_compute"
        last = next(number for number, play in enumerate(plays) if play["name"].startswith("Change the driver"))
        path = directory / "gpu.yml"
        path.write_text(yaml.safe_dump(plays[: last + 1]))
    else:
        path = content.playbook(playbook)
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(inventory), str(path), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def recap(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, int]]:
    """Return Ansible's own counts by machine."""
    found: dict[str, dict[str, int]] = {}
    for line in done.stdout.split("PLAY RECAP", 1)[1].splitlines():
        if match := re.match(r"(\S+)\s+:\s+(.*)", line):
            found[match[1]] = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", match[2])}
    return found


def changed_in_order(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    """Return which machines each batch reached."""
    plays = done.stdout.split("PLAY [Change the driver, one machine first]")[1:]
    begun = [play.split("Begin | Record that this machine has begun]", 1)[-1].split("TASK [", 1)[0] for play in plays]
    return [sorted(re.findall(r"ok: \[(\w+)\]", text)) for text in begun]


def test_machines_without_gpus_cost_one_task_and_say_nothing(tmp_path: Path) -> None:
    done = stage(tmp_path, {"node1": "", "node2": ""}, *AS_IT_IS)

    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout + done.stderr
    assert "TASK [nvidia_driver" not in done.stdout
    for counts in recap(done).values():
        assert counts["changed"] == 0
    # The first of a play, whichever it is, has read what roles leave behind, worked out what all share, and seen that
    # nobody else changes the cluster.
    tasks = sum(sum(counts.values()) for name, counts in recap(done).items() if name != "head")
    assert 2 <= tasks <= 2 + 3


#: Enough to see that one goes first, and one after it; that a quarter is more than one is seen of eight, below.
FEW = {f"node{number}": "needs=driver" for number in range(1, 4)}


def test_one_machine_goes_first_and_a_quarter_follows_at_a_time(tmp_path: Path) -> None:
    done = stage(tmp_path, {**FEW, "node4": ""}, stub=True)

    assert done.returncode == 0, done.stdout
    assert changed_in_order(done) == [[f"node{number}"] for number in range(1, 4)]


def test_a_first_machine_that_fails_leaves_all_others_as_they_are(tmp_path: Path) -> None:
    done = stage(tmp_path, {**FEW, "node1": "needs=driver broken=yes"}, stub=True)

    assert done.returncode != 0
    assert changed_in_order(done) == [["node1"]]


def test_a_later_machine_that_fails_stops_the_batches_after_it_and_is_named(tmp_path: Path) -> None:
    hosts = {f"node{number}": "needs=driver" for number in range(1, 9)}
    hosts["node3"] += " broken=yes"

    done = stage(tmp_path, hosts, stub=True)

    # Eight machines: one, then two at a time. node2 is in the batch of the one that fails, and gets through.
    assert changed_in_order(done)[:2] == [["node1"], ["node2", "node3"]]
    reached = [name for batch in changed_in_order(done)[2:] for name in batch]
    assert reached == []
    assert "nvidia_driver.canary: fail: observed node3" in done.stdout


def test_preflight_refuses_what_the_stage_would_refuse_before_anything_is_changed_anywhere(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"nvidia_driver_install": "true", "nvidia_driver_cuda": ["14.0"]}

    done = stage(tmp_path, {"node1": ""}, "-e", json.dumps(settings), playbook="preflight")

    assert done.returncode == 3, done.stdout + done.stderr
    assert "verdict: fail" in done.stdout
    assert "nvidia_driver.cuda: fail: observed CUDA 14.0 with branch 580" in done.stdout
    assert recap(done)["node1"]["changed"] == 0
