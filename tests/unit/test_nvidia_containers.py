"""Can containers be given GPUs: machines that can, those of each kind that cannot, and the program at boot."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from provision import content
from provision.judge import gpu_containers
from provision.model.gres import gpus
from provision.model.text import sections

SPEC = (Path(__file__).parent / "fixtures" / "nvidia_containers" / "two_a40.cdi").read_text()
PACKAGES = [
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
]
DOCKER_28 = '{"ServerVersion":"28.3.0","CDISpecDirs":["/etc/cdi","/var/run/cdi"],"Runtimes":{"runc":{}}}'
DOCKER_20 = '{"ServerVersion":"20.10.24+dfsg1","Runtimes":{"nvidia":{"path":"nvidia-container-runtime"},"runc":{}}}'


def answer(**other: str) -> str:
    """Return what the program ``ask`` prints on a healthy machine, with some of its parts replaced."""
    parts = {
        "spec": SPEC,
        "driver": "580.95.05\n",
        "files": "null\nnvidia0\nnvidia1\nnvidia-caps\nnvidiactl\n",
        "packages": "".join(f"hold 1.20.0-1 {name}\n" for name in PACKAGES),
        "order": "basic.target clusterctl-gpus.service containerd.service\n",
        "engine": DOCKER_28,
        **other,
    }
    return "".join(f"== {name}\n{text}\n" for name, text in parts.items())


def told(text: str, gres: object = "gpu:A40:2", *, installed: bool = True) -> dict[str, dict[str, Any]]:
    wanted = {"version": "1.20.0-1", "packages": PACKAGES, "gres": gres}
    checks = gpu_containers.checks(text, installed=installed, **wanted)
    assert [check.id for check in checks] == list(gpu_containers.SUBJECT.ids)
    return {check.id.partition(".")[2]: check.as_dict() for check in checks}


def judged(gres: object = "gpu:A40:2", **other: str) -> dict[str, dict[str, Any]]:
    return told(answer(**other), gres)


def test_a_machine_whose_containers_can_have_its_gpus_passes() -> None:
    assert {name: check["verdict"] for name, check in judged().items()} == {
        "toolkit": "pass",
        "cdi": "pass",
        "engine": "pass",
        "boot_order": "pass",
    }


@pytest.mark.parametrize(
    ("other", "check", "cause"),
    [
        ({"spec": ""}, "cdi", "is missing"),
        ({"spec": "kind: vendor.com/net\n"}, "cdi", "is missing"),
        ({"spec": "[1, {"}, "cdi", "is missing"),
        ({"driver": "580.105.08\n"}, "cdi", "the driver changed from 580.95.05 to 580.105.08"),
        ({"files": "nvidia0\nnvidiactl\n"}, "cdi", "it lists /dev/nvidia1, which do not exist"),
        ({"engine": '{"ServerVersion":"20.10.24","Runtimes":{"runc":{}}}'}, "engine", "daemon.json does not name"),
        ({"engine": DOCKER_20[:-1] + ',"DefaultRuntime":"nvidia"}'}, "engine", "at every systemctl daemon-reload"),
        ({"order": "basic.target containerd.service\n"}, "boot_order", "before the GPUs' device files exist"),
        ({"packages": f"hold 1.20.0-1 {PACKAGES[0]}\n"}, "toolkit", "must be of one version"),
    ],
    ids=[
        "no description", "another's description", "broken description", "old description", "device file gone",
        "old engine without the runtime", "legacy hook", "no order at boot", "package gone",
    ],
)  # fmt: skip
def test_each_way_to_fail_says_what_it_is_and_what_to_do(other: dict[str, str], check: str, cause: str) -> None:
    found = judged(**other)

    assert found[check]["verdict"] == "fail"
    assert cause in found[check]["cause"]
    assert found[check]["fix"]
    assert [name for name, one in found.items() if one["verdict"] != "pass"] == [check]


@pytest.mark.parametrize(
    ("row", "observed"),
    [
        ("- 1.20.0-1 libnvidia-container1\n", "libnvidia-container1 is not held"),
        ("hold 1.17.8-1 libnvidia-container1\n", "libnvidia-container1 1.17.8-1"),
    ],
)
def test_a_package_that_may_go_its_own_way_fails(row: str, observed: str) -> None:
    packages = "".join(f"hold 1.20.0-1 {name}\n" for name in PACKAGES[:3])

    assert judged(packages=packages + row)["toolkit"]["observed"] == observed


def test_fewer_gpus_than_declared_fails_with_both_numbers() -> None:
    check = judged(gres="gpu:A40:4")["cdi"]

    assert (check["verdict"], check["cause"]) == ("fail", "2 GPUs can be given to containers, node_gres says 4")


def test_an_engine_before_cdi_may_have_nvidias_runtime_instead() -> None:
    assert judged(engine=DOCKER_20)["engine"]["verdict"] == "pass"


def test_what_did_not_answer_is_unknown_and_not_a_pass() -> None:
    assert judged(driver="")["cdi"]["verdict"] == "unknown"
    assert judged(engine="")["engine"]["verdict"] == "unknown"
    assert {check["verdict"] for check in told("").values()} == {"unknown"}


@pytest.mark.parametrize(
    ("gres", "number"),
    [("gpu:A40:4", 4), ("gpu:a100_1g.5gb:7,gpu:a100:1,nic:2", 8), (["gpu:2"], 2), ("", 0), (None, 0)],
)
def test_declared_gpus_are_counted_however_they_are_written(gres: object, number: int) -> None:
    assert gpus(gres) == number


def test_a_machine_without_gpus_of_its_own_is_skipped_with_the_reason() -> None:
    assert {(check["verdict"], check["unproven"]) for check in told("", installed=False).values()} == {("skip", False)}


MIG_SPEC = SPEC.replace("GPU-", "MIG-")


def test_mig_instances_are_what_containers_are_given_and_what_is_declared() -> None:
    assert judged(gres="gpu:a100_1g.5gb:2", spec=MIG_SPEC)["cdi"]["verdict"] == "pass"
    assert judged(gres="gpu:a100_1g.5gb:7", spec=MIG_SPEC)["cdi"]["verdict"] == "fail"


ALIASES = "kind: nvidia.com/gpu\na: &a [x, x]\nb: &b [*a, *a]\ndevices: [*b, *b]\n"
HOSTILE = [
    "", "\x00" * 1000, "[" * 50_000, ALIASES, "kind: nvidia.com/gpu\ndevices: 7\n", "{{ 7 * 7 }}", "9" * 2_000_000,
    "kind: nvidia.com/gpu\ndevices: [1, null, {name: [], containerEdits: x}]\ncontainerEdits: {mounts: [1]}\n",
    '{"ServerVersion": {"a": 1}, "CDISpecDirs": 7, "Runtimes": []}', "\x1b[2J\x07\u202e", "true", "-1 -1 -1\n" * 9,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("part", ["spec", "driver", "files", "packages", "order", "engine"])
def test_a_machine_that_answers_anything_is_judged_by_every_name(part: str, text: str) -> None:
    checks = judged(**{part: text}).values()

    shown = "".join(str(check[key]) for check in checks for key in ("observed", "expected", "cause", "fix"))
    assert all(ord(letter) >= 32 for letter in shown)
    assert len(shown) < 20_000
    if part != "files":
        assert {check["verdict"] for check in checks} != {"pass"}


# The program that runs at boot, with stand-ins for NVIDIA's and for the device files' directory.

PROGRAM = content.ROOT / "roles" / "nvidia_containers" / "files" / "clusterctl-gpus"


class Machine:
    """A machine whose /dev, /proc and /var/run/cdi are in a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("bin", "dev", "proc/driver/nvidia/gpus"):
            (folder / name).mkdir(parents=True)
        self.program("nvidia-ctk", f"cat {folder}/description")
        self.program("nvidia-smi", "exit 0")
        self.program("sleep", f"echo x >>{folder}/slept")
        (folder / "description").write_text("kind: nvidia.com/gpu\n")
        text = PROGRAM.read_text()
        for place in ("/dev", "/proc", "/var/run/cdi"):
            text = text.replace(f" {place}", f" {folder}{place}").replace(f"={place}", f"={folder}{place}")
        self.script = folder / "clusterctl-gpus"
        self.script.write_text(text)

    def program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def gpu(self, number: int) -> None:
        (self.folder / "dev" / f"nvidia{number}").touch()

    def run(self, count: int, seconds: int = 3) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        return subprocess.run(
            ["sh", str(self.script), str(count), str(seconds)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def slept(self) -> int:
        path = self.folder / "slept"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_at_boot_the_gpus_are_described_and_a_second_time_nothing_changes(machine: Machine) -> None:
    machine.gpu(0)
    machine.gpu(1)

    first, again = machine.run(2), machine.run(2)

    assert (first.returncode, first.stdout) == (0, "changed\n")
    assert (again.returncode, again.stdout) == (0, "")
    assert (machine.folder / "var/run/cdi/nvidia.yaml").read_text() == "kind: nvidia.com/gpu\n"
    assert [path.name for path in (machine.folder / "var/run/cdi").iterdir()] == ["nvidia.yaml"]
    assert machine.slept == 0


def test_a_gpu_that_comes_late_is_waited_for(machine: Machine) -> None:
    machine.gpu(0)
    machine.program("sleep", f"echo x >>{machine.folder}/slept; touch {machine.folder}/dev/nvidia1")

    done = machine.run(2)

    assert done.returncode == 0
    assert machine.slept == 1


def test_a_gpu_that_never_comes_is_told_in_numbers_and_the_others_are_described(machine: Machine) -> None:
    machine.gpu(0)

    done = machine.run(2)

    assert done.returncode == 1
    assert "1 of 2 GPUs have device files after 3 s" in done.stderr
    assert machine.slept == 3
    assert (machine.folder / "var/run/cdi/nvidia.yaml").exists()


def test_without_a_number_the_drivers_own_count_is_waited_for(machine: Machine) -> None:
    (machine.folder / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir()

    assert machine.run(0).returncode == 1
    machine.gpu(0)
    assert machine.run(0).returncode == 0


def test_a_toolkit_that_fails_leaves_the_last_description_alone(machine: Machine) -> None:
    machine.gpu(0)
    machine.run(1)
    machine.program("nvidia-ctk", "echo 'failed to initialize NVML' >&2; exit 1")

    done = machine.run(1)

    assert done.returncode != 0
    assert (machine.folder / "var/run/cdi/nvidia.yaml").read_text() == "kind: nvidia.com/gpu\n"


def test_an_answer_is_read_to_its_limit_and_its_first_word_stands() -> None:
    text = "== engine\nfirst\n== engine\nsecond\n== order\nlate\n"

    assert sections(text) == {"engine": "first\n", "order": "late\n"}
    assert sections(text, 15) == {"engine": "first"}
