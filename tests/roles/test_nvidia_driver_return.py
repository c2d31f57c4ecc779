"""The end of stage gpu: a node is given back to Slurm when its jobs can work, and not before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
import yaml

from provision import content
from provision.ansible_env import clean_environment

HOST = "ansible_connection=local ansible_become=false ansible_python_interpreter={python}"
REASON = "clusterctl: nvidia driver"

#: Answers for slurmctld and for slurmd's container from files of a directory, and writes down what was asked of it.
DOCKER = """\
#!/bin/sh
echo "docker $*" >>{0}/log
case "$*" in
    "container inspect slurmd") [ -e {0}/slurmd ] ;;
    "container inspect slurmctld") exit 0 ;;
    *"scontrol show nodes --json") cat {0}/nodes.json ;;
    "exec slurmd "*) [ -e {0}/renewed ] && cat {0}/gpus ;;
    *) exit 0 ;;
esac
"""
GPUS = "GPU 0: NVIDIA A40 (UUID: GPU-11111111-2222-3333-4444-555555555555)\n"
NOTE = """---
- name: Note that it ran
  ansible.builtin.shell: echo {0} >>{1}/log; {2}
  changed_when: false
"""


#: The roles after the driver's, each with the part of it that changes a machine, and what a site asks of them.
STEPS = {"nvidia_mig": "divide", "cuda_toolkit": "install", "nvidia_containers": "install"}
ASKED = "node_mig=0:1g.5gb nvidia_containers_install=true cuda_toolkit_versions='[\"12.8\"]'"


class Stage:
    """Stage gpu on this computer: real order, real return to Slurm, and stand-ins for what changes a machine."""

    def __init__(
        self, directory: Path, *, reason: str = REASON, needs: bool = True, steps: Collection[str] = ()
    ) -> None:
        """Say whether the node needs another driver, and which of the roles after it have something to do there."""
        self.directory = directory
        self.steps = steps
        roles = directory / "roles"
        for role in ("nvidia_driver", *STEPS):
            shutil.copytree(content.ROOT / "roles" / role, roles / role)
        pending = "[driver]" if needs else "[]"
        self.task("nvidia_driver", "true", "change")
        (roles / "nvidia_driver/tasks/verify.yml").write_text("---\n")
        (roles / "nvidia_driver/tasks/plan.yml").write_text(
            "---\n- name: Decide\n  ansible.builtin.set_fact:\n"
            f"    __nvidia_driver_state: {{plan: {{skip: '', pending: {pending}}}}}\n"
        )
        for role, part in STEPS.items():
            self.task(role, "true", part)
        self.task("slurm_service", f"touch {directory}/renewed", "renew")
        # Without the observations, which would find this computer as it is: the inventory has their groups.
        plays = [play for play in yaml.safe_load(content.playbook("gpu").read_text()) if "hosts" in play]
        (directory / "gpu.yml").write_text(yaml.safe_dump(plays))
        (directory / "bin").mkdir()
        (directory / "bin/docker").write_text(DOCKER.format(directory))
        (directory / "bin/docker").chmod(0o755)
        (directory / "slurmd").touch()
        (directory / "gpus").write_text(GPUS)
        node = {"name": "node1", "state": ["IDLE", "DRAIN"], "reason": reason}
        (directory / "nodes.json").write_text(json.dumps({"nodes": [node]}))

    def task(self, role: str, then: str, name: str = "main") -> None:
        """Have a role's tasks be a line in the log, and then a command."""
        folder = self.directory / "roles" / role / "tasks"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yml").write_text(NOTE.format(role, self.directory, then))

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run the stage."""
        host = HOST.format(python=sys.executable)
        inventory = self.directory / "inventory.ini"
        found = "".join(f"[pending_{role}]\nnode1\n" for role in ("nvidia_driver", *self.steps))
        inventory.write_text(f"[slurm_controller]\nhead {host}\n[slurm_compute]\nnode1 {host} {ASKED}\n{found}")
        environment = {
            **clean_environment(),
            "ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
        }
        environment["PATH"] = f"{self.directory}/bin:{os.environ['PATH']}"
        command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(inventory), "gpu.yml"]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=self.directory)

    @property
    def log(self) -> list[str]:
        """What was done, in order."""
        return (self.directory / "log").read_text().splitlines()

    @property
    def resumed(self) -> bool:
        """Whether Slurm was told to use the node again."""
        return any("State=RESUME" in line for line in self.log)


@pytest.mark.slow
def test_a_node_is_given_back_after_mig_descriptions_and_slurmds_container_are_renewed(tmp_path: Path) -> None:
    stage = Stage(tmp_path, steps=STEPS)

    done = stage.run()

    assert done.returncode == 0, done.stdout
    kept = [line for line in stage.log if not line.startswith("docker") or "nvidia-smi" in line or "update" in line]
    assert [line.split()[0] for line in kept[:5]] == [
        "nvidia_driver", "nvidia_mig", "cuda_toolkit", "nvidia_containers", "slurm_service",
    ]  # fmt: skip
    assert "nvidia-smi -L" in kept[5]
    assert kept[6].endswith("scontrol update NodeName=node1 State=RESUME")
    assert len(kept) == 7


def keeps_it_drained(stage: Stage, answer: str) -> None:
    """Run the stage where slurmd's container answers so when it is asked for its GPUs."""
    (stage.directory / "gpus").write_text(answer)

    done = stage.run()

    assert done.returncode != 0
    assert not stage.resumed
    assert "nvidia_driver.jobs: fail" in done.stdout
    assert f"stays drained in Slurm ({REASON})" in done.stdout
    assert "\x1b[2J" not in done.stdout


@pytest.mark.parametrize(
    # The driver, and the last of those that share one block.
    "role",
    [
        "nvidia_driver",
        pytest.param("nvidia_mig", marks=pytest.mark.night),
        pytest.param("nvidia_containers", marks=pytest.mark.slow),
    ],
)
def test_a_step_that_fails_leaves_the_node_drained_and_says_so(tmp_path: Path, role: str) -> None:
    stage = Stage(tmp_path, steps=STEPS.keys() & {role})
    stage.task(role, "exit 1", STEPS.get(role, "change"))

    done = stage.run()

    assert done.returncode != 0
    assert not stage.resumed
    assert f"stays drained ({REASON}) until" in " ".join(done.stdout.split())


def test_what_an_interrupted_run_has_kept_comes_back_only_when_jobs_can_work(tmp_path: Path) -> None:
    stage = Stage(tmp_path, needs=False)

    keeps_it_drained(stage, "\x1b[2J{{ 7 * 7 }}\n")

    (tmp_path / "gpus").write_text(GPUS)
    assert stage.run().returncode == 0
    assert stage.resumed


@pytest.mark.slow
def test_a_drain_of_somebody_else_is_left_alone_and_costs_no_renewal(tmp_path: Path) -> None:
    stage = Stage(tmp_path, reason="fan is loud", needs=False)

    assert stage.run().returncode == 0
    assert not stage.resumed
    assert "slurm_service" not in stage.log
