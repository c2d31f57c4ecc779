"""The job script that ddp_validation writes, rendered by the real Ansible from an inventory, without a machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from provision import content
from provision.ansible_env import clean_environment

ROLE = content.ROOT / "roles" / "ddp_validation"
SHARED = content.ROOT / "roles/cluster/defaults/main.yml"

INVENTORY = """\
[slurm_controller]
head

[slurm_compute]
node1 node_gres=gpu:A40:4
node2 node_gres=gpu:A40:2,gpu:V100:1
node3 node_gres=

[all:vars]
cluster_name=a40
cluster_simulated={simulated}
ansible_connection=local
ansible_python_interpreter={python}
"""


#: Variables of the scripts that are rendered, by name.
SITES: dict[str, dict[str, str]] = {"plain": {}, "partition": {"ddp_validation_partition": "gpu"}}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The job script of node1, as each of the sites has it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "inventory.ini").write_text(INVENTORY.format(python=sys.executable, simulated="gpu,rdma"))
    template = {"src": str(ROLE / "templates/ddp_job.sh.j2")}
    play = {
        "hosts": "node1",
        "gather_facts": False,
        "vars_files": [str(path) for path in (SHARED, ROLE / "defaults/main.yml", ROLE / "vars/main.yml")],
        "tasks": [
            {"ansible.builtin.template": {**template, "dest": str(folder / name)}, "vars": variables}
            for name, variables in SITES.items()
        ],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    chosen = {"ddp_validation_image": "head:5000/ddp@sha256:00"}
    program = str(Path(sys.executable).parent / "ansible-playbook")
    done = subprocess.run(
        [program, "-i", str(folder / "inventory.ini"), "-e", json.dumps(chosen), str(folder / "play.yml")],
        env={**clean_environment(), "ANSIBLE_FILTER_PLUGINS": str(ROLE / "filter_plugins"), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: (folder / name).read_text(encoding="utf-8") for name in SITES}


@pytest.fixture
def script(scripts: dict[str, str]) -> str:
    return scripts["plain"]


def test_the_image_is_named_by_digest(script):
    assert "export DDP_IMAGE=head:5000/ddp@sha256:00\n" in script


def test_a_partition_is_named_only_where_the_site_names_one(scripts):
    assert "--partition" not in scripts["plain"]

    assert "#SBATCH --partition=gpu\n" in scripts["partition"]


@pytest.mark.parametrize(("nodes", "expected"), [("node1", "node1=4"), ("node1 node2", "node1=4,node2=3")])
def test_anybodys_own_allocation_expects_the_ranks_of_its_own_nodes(script, tmp_path, nodes, expected):
    path = tmp_path / "ddp_job.sh"
    path.write_text(script)
    # Slurm's and the resolver's answers, and an srun that shows what the node's part would get.
    for name, text in {
        "scontrol": f"printf '%s\\n' {nodes}",
        "getent": 'echo "10.0.0.11 STREAM $2"',
        "srun": 'echo "$DDP_EXPECT $DDP_ADDRESS:$DDP_PORT $SRUN_CPUS_PER_TASK"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_JOB_ID": "12345",
        "SLURM_JOB_NODELIST": "whatever",
        "SLURM_JOB_NUM_NODES": str(len(nodes.split())),
        "SLURM_JOB_CPUS_PER_NODE": "48(x2),32",
    }

    done = subprocess.run(["bash", str(path)], env=environment, capture_output=True, text=True, check=False)

    assert done.stdout == f"{expected} 10.0.0.11:22345 32\n", done.stderr


RECORD = {
    "schema": "ddp_proof.rank/1",
    "state": 'running\n "step": "owned"',
    "step": "parameters",
    "waiting": "training step 12 of 30",
    "error": {"kind": "own", "text": "$(touch owned); x"},
    "outcomes": {"identity": "pass", "collectives": "fail", "Comment=x y": "pass", "broadcast": "owned"},
}


def test_how_far_the_ranks_are_is_in_the_jobs_comment_in_words_of_the_program_alone(script, tmp_path):
    path = tmp_path / "ddp_job.sh"
    # The runs' directory of the site's proof is not this user's: the records go below /tmp.
    path.write_text(script)
    (tmp_path / "record").write_text(json.dumps(RECORD, indent=1))
    run = f"test-{os.getpid()}"
    for name, text in {
        "scontrol": f'[ "$1" = update ] && echo "$*" >>{tmp_path}/updates || echo node1',
        "getent": 'echo "10.0.0.11 STREAM $2"',
        "srun": f'cp {tmp_path}/record "$DDP_RUN_DIRECTORY/rank-3.json"\n'
        f"until [ -e {tmp_path}/updates ]; do sleep 0.05; done; exit 3",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "DDP_RUN_ID": run,
        "SLURM_JOB_ID": "12345",
        "SLURM_JOB_NODELIST": "whatever",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_CPUS_PER_NODE": "48",
    }

    done = subprocess.run(
        ["bash", str(path)], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    shutil.rmtree(f"/tmp/clusterctl-ddp-{os.geteuid()}/{run}")

    assert done.returncode == 3, done.stderr
    said = "step=parameters,waiting=training_step_12_of_30,identity=pass,collectives=fail"
    # Once while the ranks work, and once more when they have ended.
    assert (tmp_path / "updates").read_text() == f"update JobId=12345 Comment={said}\n" * 2
    assert not (tmp_path / "owned").exists()


def test_another_users_records_go_to_a_directory_of_their_own_which_nobody_else_can_plant(script):
    lines = script.splitlines()

    assert not any(line.startswith(("#SBATCH --output", "#SBATCH --chdir")) for line in lines)
    assert "[[ -O $DDP_RUNS ]] || DDP_RUNS=/tmp/clusterctl-ddp-$(id -u)" in lines
    assert lines.index("umask 0077") < lines.index("if [[ ! -O $DDP_RUNS || -L $DDP_RUNS ]]; then")


def test_every_module_of_the_program_is_installed():
    listed = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["__ddp_validation_modules"]

    for module in (ROLE / "files" / "ddp_proof").glob("*.py"):
        assert f"'{module.stem}'" in listed


def test_a_changed_line_of_any_module_is_another_program():
    sys.path.insert(0, str(ROLE / "files"))
    from ddp_proof import release

    assert release.digest({"a": "x", "b": "y"}) == release.digest({"b": "y", "a": "x"})
    assert len({release.digest(one) for one in ({"a": "x"}, {"a": "y"}, {"b": "x"}, {"a": "x", "b": ""}, {})}) == 5
