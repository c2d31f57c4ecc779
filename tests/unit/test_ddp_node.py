"""The node's part of the DDP job, with stand-ins for Slurm's step, podman and the GPUs' own tool."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from waiting import PATIENCE, until

from provision import content

SCRIPT = content.ROOT / "roles" / "ddp_validation" / "files" / "ddp_node.sh"

PODMAN = """\
#!/bin/sh
here=$(dirname "$0")
echo "$@" >>"$here/podman.calls"
case "$*" in
*" run "*)
  while [ -e "$here/hang" ] && [ ! -e "$here/stopped" ]; do sleep 0.05; done
  exit "$(cat "$here/podman.code")" ;;
stop*) touch "$here/stopped" ;;
esac
"""
# All GPUs that it may see, or with --id= those of these numbers. Without any it ends and says what an H200's did
# (fixtures/h200_580.159.04/query_closed.txt and list_closed.txt).
NVIDIA_SMI = """\
#!/bin/sh
case "$*" in
-L)
  [ -n "$SEEN" ] || { echo "No devices were found"; exit 0; }
  for number in $INSTANCES; do printf '  MIG 3g.40gb     Device  0: (UUID: MIG-%s)\\n' "$number"; done
  exit 0 ;;
*) [ -n "$SEEN" ] || { echo "No devices were found"; exit 6; } ;;
esac
case "$*" in
*--id=*) for number in $(echo "$*" | sed 's/.*--id=\\([0-9,]*\\).*/\\1/' | tr , ' '); do echo "GPU-$number"; done ;;
*) for number in $SEEN; do echo "GPU-$number"; done ;;
esac
"""
GETENT = """\
#!/bin/sh
case "$1" in
passwd) echo "somebody:x:1000:1000::/home/somebody:/bin/sh" ;;
ahostsv4) [ -n "$ADDRESS" ] || exit 2; echo "$ADDRESS STREAM $2" ;;
esac
"""


class Step:
    """One task of a Slurm step on node2 of two."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "podman.code").write_text("0")
        for name, text in {"podman": PODMAN, "nvidia-smi": NVIDIA_SMI, "getent": GETENT}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / "ddp" / "runs").mkdir(parents=True)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "ADDRESS": "10.0.0.12",
            "SLURMD_NODENAME": "node2",
            "SLURM_NODEID": "1",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_JOB_ID": "7",
            "SLURM_STEP_ID": "0",
            "DDP_ADDRESS": "10.0.0.11",
            "DDP_PORT": "20007",
            "DDP_EXPECT": "node1=2,node2=2",
            "DDP_RUN_ID": "r1",
            "DDP_DIRECTORY": str(self.folder / "ddp"),
            "DDP_RUNS": str(self.folder / "ddp" / "runs"),
            "DDP_RUN_DIRECTORY": str(self.folder / "ddp" / "runs" / "r1"),
            "DDP_IMAGE": "head:5000/clusterctl/ddp@sha256:00",
            "CLUSTER_SIMULATED": "",
        }

    def start(self, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(SCRIPT), "--steps", "50"],
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, **environment: str) -> int:
        process = self.start(**environment)
        process.communicate(timeout=PATIENCE)
        return process.returncode

    @property
    def calls(self) -> list[list[str]]:
        path = self.folder / "podman.calls"
        return [shlex.split(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def container(self) -> list[str]:
        return next(call for call in self.calls if "run" in call)

    @property
    def log(self) -> str:
        return (self.folder / "ddp" / "runs" / "r1" / "node.log").read_text()


@pytest.fixture
def step(tmp_path: Path) -> Step:
    return Step(tmp_path)


def options(words: list[str], name: str) -> list[str]:
    return [value for key, value in pairwise(words) if key == name]


def test_a_real_gpu_is_handed_over_by_its_uuid_and_no_other(step):
    assert step.run(SEEN="4 5", CUDA_VISIBLE_DEVICES="0,1") == 0

    # Two for the container, and the program's own: what each rank must work on.
    assert options(step.container, "--device") == ["nvidia.com/gpu=GPU-4", "nvidia.com/gpu=GPU-5", "cuda"]
    assert "DDP_PROOF_GRANTED=GPU-4,GPU-5" in options(step.container, "--env")
    assert options(step.container, "--nproc-per-node") == ["2"]
    assert not any(value.startswith("CUDA_VISIBLE_DEVICES") for value in options(step.container, "--env"))


def test_nccl_tells_its_ways_in_the_ranks_logs_whatever_the_caller_debugs(step):
    step.run(SEEN="0", CUDA_VISIBLE_DEVICES="0", NCCL_DEBUG="WARN", NCCL_DEBUG_FILE="/tmp/x", NCCL_IB_HCA="=mlx5_0")

    passed = [value for value in options(step.container, "--env") if value.startswith("NCCL_")]
    assert sorted(passed) == ["NCCL_DEBUG=INFO", "NCCL_IB_HCA"]


def test_where_slurm_constrains_nothing_the_granted_gpus_are_found_by_number(step):
    step.run(SEEN="0 1 2 3", CUDA_VISIBLE_DEVICES="2,3", SLURM_STEP_GPUS="2,3")

    assert "DDP_PROOF_GRANTED=GPU-2,GPU-3" in options(step.container, "--env")


def test_what_nvidia_smi_says_where_it_finds_none_is_no_gpus_name(step):
    assert step.run(SEEN="", CUDA_VISIBLE_DEVICES="0,1", SLURM_STEP_GPUS="0,1") == 2

    assert "Slurm granted 2 GPUs, and nvidia-smi lists none: No devices were found" in step.log
    assert not any("run" in call for call in step.calls)


def test_a_mig_instance_is_handed_over_by_its_own_uuid_and_not_by_that_of_its_gpu(step):
    step.run(SEEN="0", INSTANCES="7 8", CUDA_VISIBLE_DEVICES="0,1")

    assert options(step.container, "--device")[:2] == ["nvidia.com/gpu=MIG-7", "nvidia.com/gpu=MIG-8"]


def test_where_slurm_says_which_mig_instances_these_are_handed_over(step):
    step.run(SEEN="0", INSTANCES="7 8 9", CUDA_VISIBLE_DEVICES="MIG-8")

    assert options(step.container, "--device")[:1] == ["nvidia.com/gpu=MIG-8"]


def test_simulated_gpus_are_said_to_be_simulated_and_no_device_is_handed_over(step):
    step.run(CLUSTER_SIMULATED="gpu", CUDA_VISIBLE_DEVICES="0,1")

    assert options(step.container, "--device") == ["cpu"]
    assert {"CLUSTER_SIMULATED", "CUDA_VISIBLE_DEVICES=0,1", "DDP_PROOF_GRANTED="} <= set(
        options(step.container, "--env")
    )
    assert options(step.container, "--nproc-per-node") == ["2"]


def test_a_node_without_gpus_runs_the_declared_ranks_on_the_cpu(step):
    step.run(DDP_EXPECT="node1=2,node2=3")

    assert options(step.container, "--nproc-per-node") == ["3"]
    assert options(step.container, "--device") == ["cpu"]


def test_a_declared_gpu_that_was_not_granted_is_missed_and_not_replaced_by_the_cpu(step):
    step.run(DDP_GPUS="2", CUDA_VISIBLE_DEVICES="NoDevFiles")

    assert options(step.container, "--device") == ["cuda"]
    assert options(step.container, "--nproc-per-node") == ["2"]


@pytest.mark.parametrize(("number", "host"), [("0", "is_host=1,"), ("1", "is_host=0,")])
def test_the_rendezvous_is_on_the_first_node_and_the_same_for_all(step, number, host):
    step.run(SLURM_NODEID=number)

    assert options(step.container, "--rdzv-endpoint") == ["10.0.0.11:20007"]
    assert options(step.container, "--rdzv-id") == ["7"]
    assert options(step.container, "--rdzv-conf")[0].startswith(host)
    assert options(step.container, "--local-addr") == ["10.0.0.12"]


def test_the_container_is_unprivileged_nameable_and_pulls_nothing(step):
    step.run()

    words = step.container
    assert options(words, "--pull") == ["never"]
    assert options(words, "--cgroups") == ["disabled"]
    assert options(words, "--name") == ["clusterctl-ddp-7-0-1"]
    assert options(words, "--label") == ["clusterctl.job=7"]
    assert "--privileged" not in words
    assert "head:5000/clusterctl/ddp@sha256:00" in words


def test_a_name_that_leads_to_loopback_is_refused_before_anything_starts(step):
    assert step.run(ADDRESS="127.0.1.1") == 2

    assert "node2 resolves to 127.0.1.1" in step.log
    assert not any("run" in call for call in step.calls)


def test_a_name_that_leads_nowhere_is_refused(step):
    assert step.run(ADDRESS="") == 2

    assert "Name or service not known" in step.log


def test_the_programs_exit_code_is_the_tasks_and_the_container_is_removed(step):
    (step.folder / "podman.code").write_text("3")

    assert step.run() == 3

    assert step.calls[-1][:2] == ["rm", "--force"]
    assert step.calls[-1][-1] == "clusterctl-ddp-7-0-1"


def test_a_cancelled_job_stops_its_container_and_keeps_its_exit_code(step):
    (step.folder / "hang").touch()
    (step.folder / "podman.code").write_text("143")
    process = step.start()
    until(lambda: step.calls)

    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=PATIENCE) == 143
    process.communicate()
    assert [call[0] for call in step.calls if call[0] in ("stop", "rm")] == ["stop", "rm"]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a directory of another user")
def test_a_directory_that_somebody_else_has_planted_is_not_written_to(step):
    os.chown(step.folder / "ddp" / "runs", 64031, 64031)

    assert step.run() == 2

    assert not (step.folder / "ddp" / "runs" / "r1").exists()


def test_only_the_latest_runs_are_kept(step):
    runs = step.folder / "ddp" / "runs"
    for number in range(12):
        (runs / f"old{number:02}").mkdir()
        os.utime(runs / f"old{number:02}", (number, number))

    step.run()

    assert sorted(path.name for path in runs.iterdir()) == [*(f"old{number:02}" for number in range(3, 12)), "r1"]
