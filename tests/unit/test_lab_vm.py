"""Virtual machines of a lab without any: what QEMU is told, what a computer must have, what is kept and what goes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from machines import plugin

from provision import image_files
from provision.errors import ClusterctlError, ExitCode
from provision.lab import computer, labs, vm

NAMES = ("head", "node1", "node2")
FIT = {"architecture": "x86_64", "missing": [], "tap": True, "available": 20000, "free": 90000}

lab_vms = plugin("roles/lab_machines/library/lab_vms.py")
lab_state = plugin("roles/lab_machines/library/lab_state.py")
lab_machines = plugin("roles/lab_machines/filter_plugins/lab_machines.py")
checksums = plugin("plugins/module_utils/checksums.py", "ansible.module_utils.checksums")


def settings(**changes: Any) -> dict[str, Any]:
    """Return what the role says about a lab with two network cards in each machine."""
    return {
        "lab": "a",
        "directory": "/state/labs/a",
        "base": "/cache/lab/vm-0123",
        "accelerator": "tcg",
        "cpus": 2,
        "memory": 4096,
        "gpus": 2,
        "subnets": ["172.18.0.0/16", "172.19.0.0/16"],
        "password": False,
        **changes,
    }


def after(command: list[str], option: str) -> list[str]:
    """Return the value of an option each time that it is given."""
    return [value for word, value in pairwise(command) if word == option]


@pytest.mark.parametrize(
    ("change", "told", "remedy"),
    [
        ({"architecture": "aarch64"}, "this is aarch64", "--kind container"),
        ({"missing": ["qemu-system-x86_64", "qemu-img"]}, "qemu-img", "apt-get install .*qemu-system-x86 qemu-utils"),
        ({"tap": False}, "/dev/net/tun", "modprobe tun"),
        ({"available": 14000}, "need 14388 MiB of memory, free: 14000", "--nodes"),
        ({"free": 17999}, "need 18000 MiB of disk, free: 17999", "XDG_CACHE_HOME"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_computer_that_cannot_run_them_is_told_what_to_do(change: Mapping[str, Any], told: str, remedy: str) -> None:
    wrong = vm.unfit({**FIT, **change}, 3, 4096)

    assert wrong is not None
    assert told in wrong[0]
    assert re.search(remedy, wrong[1])


def test_a_computer_that_has_all_of_it_is_fit() -> None:
    assert vm.unfit(FIT, 3, 4096) is None


def test_machines_that_run_already_need_no_more_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(computer, "look", lambda _disk: {**FIT, "available": 100})
    monkeypatch.setattr(computer, "running", lambda _lab: dict.fromkeys(NAMES, 1))

    assert computer.unfit("a", tmp_path, 3, 4096) is None
    assert computer.unfit("a", tmp_path, 4, 4096) is not None


def test_machines_share_nothing_that_they_could_write_and_the_controller_has_no_gpu() -> None:
    made = vm.machines(NAMES, settings())

    shares = {name: after(machine["command"], "-virtfs") for name, machine in made.items()}
    words = {name: after(machine["command"], "-append")[0].split() for name, machine in made.items()}
    assert all("readonly=on" in share for name in NAMES for share in shares[name])
    assert [next(w for w in words[name] if w.startswith("lab.gpus")) for name in NAMES] == [
        "lab.gpus=0",
        "lab.gpus=2",
        "lab.gpus=2",
    ]


def test_each_network_card_has_its_own_address_and_only_the_first_leads_out() -> None:
    made = vm.machines(NAMES, settings())

    words = after(made["node2"]["command"], "-append")[0].split()
    cards = [mac for machine in made.values() for mac in re.findall(r"mac=([0-9a-f:]+)", " ".join(machine["command"]))]
    assert [word for word in words if word.startswith("ip=")] == [
        "ip=172.18.0.12::172.18.0.1:255.255.0.0::eth0:off",
        "ip=172.19.0.12:::255.255.0.0::eth1:off",
    ]
    assert len(set(cards)) == 6
    assert all(re.fullmatch(r"52:54:00(:[0-9a-f]{2}){3}", card) for card in cards)


def test_a_machine_that_reboots_stays_the_same_process() -> None:
    for machine in vm.machines(NAMES, settings()).values():
        assert not {"-no-reboot", "-snapshot"} & set(machine["command"])


@pytest.mark.parametrize(
    "change", [{"gpus": 3}, {"memory": 2048}, {"cpus": 1}, {"subnets": ["172.20.0.0/16"]}, {"password": True}]
)
def test_what_is_fixed_when_a_machine_is_made_makes_another_one(change: Mapping[str, Any]) -> None:
    before, changed = vm.machines(NAMES, settings()), vm.machines(NAMES, settings(**change))

    assert before["node1"]["shape"] != changed["node1"]["shape"]


def test_a_newer_disk_to_start_from_makes_no_machine_another_one() -> None:
    before, changed = (vm.machines(NAMES, settings(base=base)) for base in ("/cache/vm-1", "/cache/vm-2"))

    assert after(changed["node1"]["command"], "-kernel") == ["/state/labs/a/vm/vm-2.vmlinuz"]
    assert {name: machine["shape"] for name, machine in before.items()} == {
        name: machine["shape"] for name, machine in changed.items()
    }


@pytest.mark.parametrize(
    ("command", "machine"),
    [
        (["/usr/bin/qemu-system-x86_64", "-name", "clusterctl/a/node1", "-daemonize"], "node1"),
        (["qemu-system-x86_64", "-m", "1", "-name", "clusterctl/a-b/node1"], ""),
        (["qemu-system-x86_64", "-name", "somebody's"], ""),
        (["qemu-system-x86_64", "-name"], ""),
        (["vi", "-name", "clusterctl/a/node1"], ""),
        ([""], ""),
    ],
)
def test_a_process_is_known_by_how_it_was_started(command: list[str], machine: str, tmp_path: Path) -> None:
    process = tmp_path / "123"
    process.mkdir()
    (process / "cmdline").write_text("\0".join([*command, ""]), encoding="utf-8")

    assert computer.running("a", tmp_path) == ({machine: 123} if machine else {})


@pytest.mark.parametrize(
    ("text", "kind"),
    [("name: a\nkind: vm\n", "vm"), ("kind: container\n", "container"), ("kind: [", "container"), ("", "container")],
)
def test_a_lab_keeps_its_kind(text: str, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    labs.directory("a").mkdir(parents=True)
    (labs.directory("a") / "lab.yml").write_text(text, encoding="utf-8")

    assert labs.recorded_kind("a") == kind
    # Nothing is made here where it is not refused.
    monkeypatch.setattr(labs, "_refuse_unfit", lambda: None)
    monkeypatch.setattr(computer, "unfit", lambda *_: None)
    monkeypatch.setattr(labs, "_play", lambda *_: None)
    with pytest.raises(ClusterctlError, match=f"lab 'a' is there and of the kind {kind}") as refused:
        labs.up("a", kind="mixed")
    assert (refused.value.fix, refused.value.exit_code) == ("clusterctl lab down a", ExitCode.BAD_REQUEST)


def test_an_unfit_computer_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(labs, "_refuse_unfit", lambda: None)
    monkeypatch.setattr(computer, "look", lambda _disk: {**FIT, "missing": ["qemu-img"]})

    with pytest.raises(ClusterctlError, match="qemu-img") as refused:
        labs.up("a", kind="vm")

    assert refused.value.exit_code is ExitCode.BAD_REQUEST
    assert "apt-get install" in refused.value.fix
    assert list(tmp_path.iterdir()) == []


class Module:
    """As much of AnsibleModule as the code below main asks for."""

    def __init__(self, *, check_mode: bool = False) -> None:
        self.check_mode = check_mode

    def run_command(self, command: list[str], *, check_rc: bool = False) -> tuple[int, str, str]:
        done = subprocess.run(command, capture_output=True, text=True, check=check_rc)
        return done.returncode, done.stdout, done.stderr

    def fail_json(self, msg: str) -> None:
        raise AssertionError(msg)


class Home:
    """A lab's directory, a disk to start from, and a QEMU that only waits."""

    def __init__(self, directory: Path) -> None:
        self.lab = f"u{os.getpid()}"
        self.vm = directory / "vm"
        self.base = directory / "cache" / "vm-1"
        for place in (self.vm, self.base.parent):
            place.mkdir()
        for kind in ("vmlinuz", "initrd", "disk"):
            self.base.with_name(f"vm-1.{kind}").write_text(kind, encoding="utf-8")

    def wanted(self, *names: str, **changes: Any) -> dict[str, dict[str, Any]]:
        """Return what the module is to keep, as the filter makes it."""
        return vm.machines(names, settings(lab=self.lab, directory=str(self.vm.parent), base=str(self.base), **changes))

    def settle(self, wanted: Mapping[str, Any], **options: Any) -> tuple[list[str], list[str]]:
        """Run the module's work."""
        done: tuple[list[str], list[str]] = lab_vms.settle(Module(**options), self.lab, self.vm, wanted)
        return done

    def running(self) -> list[str]:
        """Return the machines that run, once those that were just started have become themselves."""
        return sorted(computer.running(self.lab))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A lab with stand-ins for QEMU's programs, gone at the end."""
    programs = tmp_path / "bin"
    programs.mkdir()
    waits = "import time; time.sleep(3600)"
    # Ready when it returns, as -daemonize is: its process is already the one that is looked for.
    (programs / "qemu-system-x86_64").write_text(
        "#!/bin/bash\n"
        f"(exec -a qemu-system-x86_64 {sys.executable} -c '{waits}' \"$@\") >/dev/null 2>&1 &\n"
        "until tr '\\0' ' ' </proc/$!/cmdline | grep -q '^qemu-system'; do sleep 0.02; done\n",
        encoding="utf-8",
    )
    (programs / "qemu-img").write_text('#!/bin/sh\nfor last; do :; done; : >"$last"\n', encoding="utf-8")
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    made = Home(tmp_path)
    yield made
    made.settle({})
    assert made.running() == []


def test_machines_are_made_once_and_switched_on_again_with_their_disks(home: Home) -> None:
    assert home.settle(home.wanted("head", "node1")) == ([], ["head", "node1"])
    assert home.running() == ["head", "node1"]
    (home.vm / "node1" / "disk").write_text("mine", encoding="utf-8")
    assert home.settle(home.wanted("head", "node1")) == ([], [])

    lab_vms.stop(home.lab, "node1")

    assert home.running() == ["head"]
    assert home.settle(home.wanted("head", "node1")) == ([], ["node1"])
    assert (home.vm / "node1" / "disk").read_text(encoding="utf-8") == "mine"


def test_a_machine_of_another_shape_is_made_anew_and_one_too_many_goes(home: Home) -> None:
    home.settle(home.wanted("head", "node1", "node2"))
    (home.vm / "node1" / "disk").write_text("old", encoding="utf-8")

    assert home.settle(home.wanted("head", "node1", gpus=7)) == (["node1", "node2"], ["node1"])

    assert home.running() == ["head", "node1"]
    assert (home.vm / "node1" / "disk").read_text(encoding="utf-8") == ""
    assert not (home.vm / "node2").exists()


def test_what_a_killed_run_left_is_cleared_away(home: Home) -> None:
    home.settle(home.wanted("head", "node1"))
    (home.vm / "node1" / "machine.json").unlink()
    (home.vm / ".node2").mkdir()

    assert home.settle(home.wanted("head", "node1", "node2")) == ([".node2", "node1"], ["node1", "node2"])
    assert home.running() == ["head", "node1", "node2"]


def test_a_machine_does_not_carry_the_mark_of_the_run_that_started_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTERCTL_RUN", "of-a-test")

    home.settle(home.wanted("head"))

    (pid,) = computer.running(home.lab).values()
    assert b"CLUSTERCTL_RUN=" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_machines_get_this_trees_images_else_the_newest_with_slurms_first() -> None:
    tags = {"slurm": {"1": "sha256:1", "of-ours": "sha256:ours", "3": "sha256:3"}, "ddp": {"1": "sha256:d"}}

    assert vm.images(tags, {}) == ["slurm@sha256:3", "ddp@sha256:d"]
    assert vm.images(tags, {"slurm": "of-ours", "ddp": "of-none"}) == ["slurm@sha256:ours", "ddp@sha256:d"]


def test_images_are_found_in_the_registrys_directory_by_the_tag_that_the_module_gives_them(tmp_path: Path) -> None:
    files = image_files.texts("slurm_image")
    project = tmp_path / "docker/registry/v2/repositories/clusterctl"
    for age, tag in enumerate(("newest", checksums.tag(checksums.sums(files)), "oldest")):
        link = project / "slurm/_manifests/tags" / tag / "current/link"
        link.parent.mkdir(parents=True)
        link.write_text(f"sha256:{age}")
        os.utime(link, (1000 - age, 1000 - age))
    (project / "jobs/mine/_manifests/tags").mkdir(parents=True)

    assert lab_machines.lab_images(tmp_path) == ["slurm@sha256:1"]
    shutil.rmtree(link.parents[2] / checksums.tag(checksums.sums(files)))
    assert lab_machines.lab_images(tmp_path) == ["slurm@sha256:0"]
    assert lab_machines.lab_images(tmp_path / "empty") == []


def test_without_slurms_image_there_is_nothing_to_unpack_others_with() -> None:
    assert vm.images({"ddp": {"1": "sha256:d"}}, {}) == []
    assert vm.images({}, {}) == []


def test_check_mode_starts_nothing(home: Home) -> None:
    assert home.settle(home.wanted("head"), check_mode=True) == ([], ["head"])
    assert home.running() == []


def test_a_lab_keeps_what_its_disks_start_from_when_the_cache_forgets_it(home: Home) -> None:
    home.settle(home.wanted("head"))

    for path in home.base.parent.iterdir():
        path.unlink()

    assert (home.vm / "vm-1.disk").read_text(encoding="utf-8") == "disk"


def test_a_machine_that_is_switched_off_is_listed_with_its_address(home: Home) -> None:
    home.settle(home.wanted("head", "node1"))
    lab_vms.stop(home.lab, "node1")

    found = lab_state.virtual_machines(home.vm, computer.running(home.lab))

    assert lab_state.in_order(found) == [
        {"name": "head", "address": "172.18.0.10", "state": "running", "kind": "vm", "container": ""},
        {"name": "node1", "address": "172.18.0.11", "state": "exited", "kind": "vm", "container": ""},
    ]
    assert json.loads((home.vm / "node1" / "machine.json").read_text(encoding="utf-8"))["base"] == str(home.base)


def test_a_lab_that_grows_moves_no_machine() -> None:
    small, large = (
        {name: vm.address("172.18.0.0/16", name) for name in ("head", *nodes, "login1", "login2")}
        for nodes in (("node1",), tuple(f"node{n}" for n in range(1, 65)))
    )

    assert small == {name: large[name] for name in small}
    assert len(set(large.values())) == len(large)
