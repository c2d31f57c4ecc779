"""The program that divides GPUs at boot, with a stand-in for nvidia-smi that keeps its GPUs in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provision import content

PROGRAM = content.ROOT / "roles" / "nvidia_mig" / "files" / "nvidia-mig"
SMI = content.ROOT / "molecule" / "nvidia_mig" / "files" / "nvidia-smi"

A100 = {"profiles": ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"], "reset": True}


class Machine:
    """A machine with the stand-in's GPUs."""

    def __init__(self, folder: Path, gpus: int = 2) -> None:
        self.folder, self.state = folder, folder / "gpus.json"
        self.set([{**A100, "mode": False, "instances": [], "users": []} for _ in range(gpus)])
        for name, text in {"nvidia-smi": SMI.read_text(), "systemctl": "#!/bin/sh\nexit 0\n"}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def set(self, gpus: list[dict[str, Any]]) -> None:
        self.state.write_text(json.dumps({"gpus": gpus, "calls": []}))

    @property
    def gpus(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.state.read_text())["gpus"]
        return found

    @property
    def changes(self) -> list[str]:
        """Return the calls that change something, and forget all."""
        told = json.loads(self.state.read_text())
        self.set(told["gpus"])
        words = ("-mig", "--gpu-reset", "-cgi", "-dci", "-dgi")
        return [call for call in told["calls"] if any(word in call.split() for word in words)]

    def change(self, number: int, **other: Any) -> None:
        gpus = self.gpus
        gpus[number].update(other)
        self.set(gpus)

    def run(self, **layout: list[str]) -> subprocess.CompletedProcess[str]:
        wanted = self.folder / "layout.json"
        wanted.write_text(json.dumps({name.removeprefix("gpu"): profiles for name, profiles in layout.items()}))
        environment = {"PATH": f"{self.folder}:{os.environ['PATH']}", "NVIDIA_SMI_STATE": str(self.state)}
        return subprocess.run(
            [sys.executable, str(PROGRAM), str(wanted)], env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_whole_gpu_is_divided_and_a_second_run_does_nothing(machine: Machine) -> None:
    first = machine.run(gpu0=["3g.20gb", "3g.20gb"])

    assert (first.returncode, first.stdout, first.stderr) == (0, "changed\n", "")
    assert machine.gpus[0]["instances"] == ["3g.20gb", "3g.20gb"]
    assert machine.changes != []
    again = machine.run(gpu0=["3g.20gb", "3g.20gb"])
    assert (again.returncode, again.stdout) == (0, "")
    assert machine.changes == []


def test_gpus_that_are_not_named_are_not_touched(machine: Machine) -> None:
    machine.change(1, mode=True, instances=["7g.40gb"])

    assert machine.run(gpu0=["7g.40gb"]).returncode == 0

    assert machine.gpus[1]["instances"] == ["7g.40gb"]
    assert not any("-i 1" in call for call in machine.changes)


def test_a_gpu_of_before_hopper_is_reset_to_switch_mig_on(machine: Machine) -> None:
    machine.run(gpu0=["7g.40gb"])

    assert "--gpu-reset -i 0" in machine.changes


def test_a_gpu_of_hopper_and_later_needs_no_reset(machine: Machine) -> None:
    machine.change(0, reset=False)

    assert machine.run(gpu0=["7g.40gb"]).returncode == 0
    assert "--gpu-reset -i 0" not in machine.changes


def test_a_reset_that_fails_asks_for_a_reboot(machine: Machine) -> None:
    machine.change(0, stuck=True)

    done = machine.run(gpu0=["7g.40gb"])

    assert done.returncode == 1
    assert "reboot the machine" in done.stderr


def test_a_gpu_in_use_is_refused_with_its_process_and_stays_as_it_was(machine: Machine) -> None:
    machine.change(0, mode=True, instances=["7g.40gb"], users=["4711, python3"])

    done = machine.run(gpu0=["3g.20gb", "3g.20gb"])

    assert done.returncode == 1
    assert "GPU 0 is used by 4711, python3. Drain the node" in done.stderr
    assert machine.gpus[0]["instances"] == ["7g.40gb"]
    assert machine.changes == []


def test_a_gpu_in_use_that_is_as_wanted_is_no_problem(machine: Machine) -> None:
    machine.change(0, mode=True, instances=["7g.40gb"], users=["4711, python3"])

    assert machine.run(gpu0=["7g.40gb"]).returncode == 0


def test_a_profile_that_the_gpu_does_not_have_is_refused_before_anything_is_taken_apart(machine: Machine) -> None:
    machine.change(0, mode=True, instances=["7g.40gb"])

    done = machine.run(gpu0=["1g.10gb"])

    assert done.returncode == 1
    assert "GPU 0 has no 1g.10gb; it has 1g.5gb, " in done.stderr
    assert machine.gpus[0]["instances"] == ["7g.40gb"]


def test_one_gpu_that_refuses_does_not_keep_the_others_from_it(machine: Machine) -> None:
    machine.change(0, users=["4711, python3"])

    done = machine.run(gpu0=["7g.40gb"], gpu1=["7g.40gb"])

    assert (done.returncode, done.stdout) == (1, "changed\n")
    assert machine.gpus[1]["instances"] == ["7g.40gb"]


def test_a_gpu_without_mig_says_so(machine: Machine) -> None:
    machine.change(0, mode=None)

    assert "GPU 0 has no MIG" in machine.run(gpu0=["7g.40gb"]).stderr
