"""A user's own container in a job gets the GPU that it names and no other: Podman in slurmd's container, by CDI.

The GPUs are device files without a driver, and their description is ours in NVIDIA's layout; the rest is real.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import labs
import pytest
from labs import Lab, docker

IMAGE = "$(podman images --quiet --no-trunc | head -n 1)"
OPTIONS = "--rm --pull never --network host --ipc host --cgroups disabled --security-opt label=disable"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"

SPEC = f"""\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  hooks:
  - {{hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, update-ldcache]}}
  mounts:
  - {{hostPath: {LIBRARY}, containerPath: {LIBRARY}, options: [ro, nosuid, nodev, bind]}}
devices:
- {{name: GPU-0, containerEdits: {{deviceNodes: [{{path: /dev/nvidia0}}]}}}}
- {{name: GPU-1, containerEdits: {{deviceNodes: [{{path: /dev/nvidia1}}]}}}}
"""


def inside(lab: Lab, script: str, text: str = "") -> str:
    """Run a script in slurmd's container on node1."""
    command = ["docker", "exec", "-i", lab.container("node1"), "docker", "exec", "-i", "slurmd", "sh", "-c", script]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def described(provisioned_lab: Lab) -> Iterator[Lab]:
    """A node whose GPUs are described, as the role nvidia_containers leaves it."""
    # On a machine with GPUs these are the machine's own, mounted; here the container, which is read-only, gets its own.
    inside(provisioned_lab, "mount -o remount,bind,rw /")
    inside(provisioned_lab, "mkdir -p /var/run/cdi; cat >/var/run/cdi/nvidia.yaml", SPEC)
    inside(provisioned_lab, f"echo library >{LIBRARY}")
    hook = "cat >/usr/bin/nvidia-cdi-hook; chmod 755 /usr/bin/nvidia-cdi-hook"
    inside(provisioned_lab, hook, '#!/bin/sh\ncat >/dev/null\necho "$@" >/tmp/cdi-hook\n')
    yield provisioned_lab
    inside(provisioned_lab, f"rm -rf /var/run/cdi {LIBRARY} /usr/bin/nvidia-cdi-hook /tmp/cdi-hook")
    inside(provisioned_lab, "mount -o remount,bind,ro /")


def job(lab: Lab, script: str) -> str:
    """Run a script in a job on node1 as the ordinary user that proofs are made by."""
    srun = ["srun", "--nodelist=node1", "--gres=gpu:1", "--time=5", "--chdir=/", "sh", "-c", script]
    who = ["--user", labs.PROVES, "--env", "HOME=/home/grace"]
    return docker("exec", lab.container("head"), "docker", "exec", *who, "slurmctld", *srun)


@pytest.mark.proves("nvidia_containers")
@pytest.mark.parametrize("number", ["0", "1"])
def test_a_users_container_in_a_job_has_the_gpu_that_it_names_and_no_other(described: Lab, number: str) -> None:
    look = f"ls /dev | grep '^nvidia[0-9]'; cat {LIBRARY}"
    told = job(described, f'podman run {OPTIONS} --device nvidia.com/gpu=GPU-{number} {IMAGE} sh -c "{look}"')

    assert told.split() == [f"nvidia{number}", "library"]
    # What makes the libraries known in the container was run, by the user and not by root.
    left = inside(described, "cat /tmp/cdi-hook; stat --format=%u:%g /tmp/cdi-hook").split()
    assert left == ["update-ldcache", labs.PROVES]


def test_a_users_container_that_names_none_has_none(described: Lab) -> None:
    told = job(described, f"podman run {OPTIONS} {IMAGE} sh -c \"ls /dev | grep -c '^nvidia[0-9]' || true\"")

    assert told.split() == ["0"]
