"""The machines' own Docker in jobs, and overlay networks between its containers: chosen, broken, taken back.

To choose it and to take it back are two provisions of every machine, as Slurm's image is another: make test-jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import labs
import pytest
from labs import Lab

from provision.inventory import loader

pytestmark = pytest.mark.night

STAGES = ("base", "containers", "slurm")
SOCKET = "/run/clusterctl/docker.sock"

#: What the provision said that made it so.
CHOSEN: list[str] = []

#: What each worker does: in a process group over both, by the name of the first one's container.
TRAIN = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(1)
model = DDP(torch.nn.Linear(4, 1))
model(torch.full((2, 4), 1.0 + dist.get_rank())).sum().backward()
gradient = model.module.weight.grad[0, 0].item()
print("rank", dist.get_rank(), "of", dist.get_world_size(), "gradient", gradient, flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def lab(provisioned_lab: Lab) -> Iterator[Lab]:
    """Return the lab with ada alone in the group that may use Docker, and a network; afterwards it is as before."""
    inventory = provisioned_lab.inventory.read_text()
    site = loader.load(provisioned_lab.inventory).hostvars["head"]
    users = [dict(user) for user in site["cluster_users"]]
    for user in users:
        if user["name"] == "ada":
            user["groups"] = [*user.get("groups", ()), "dockerjobs"]
    chosen = {
        "cluster_users": users,
        "cluster_groups": [*site["cluster_groups"], {"name": "dockerjobs", "gid": 3100}],
        "job_docker": "socket",
        "job_docker_group": "dockerjobs",
        "job_docker_overlay_networks": [{"name": "test-net", "subnet": "10.77.0.0/24"}],
    }
    own = ["", "[site:children]", "slurm_controller", "slurm_compute", "slurm_login", ""]
    file = provisioned_lab.directory / "group_vars" / "site.yml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(chosen))
    provisioned_lab.inventory.write_text(inventory + "\n".join(own))
    # As every provision of all stages, with a look at the machines before.
    done = labs.clusterctl("provision", provisioned_lab.inventory, "preflight", *STAGES)
    CHOSEN.extend((done.stdout + done.stderr).splitlines())
    yield provisioned_lab
    file.unlink(missing_ok=True)
    provisioned_lab.inventory.write_text(inventory)
    for machine in ("node2", "node1", "head"):
        provisioned_lab.root(machine, "docker swarm leave --force", check=False)
    labs.clusterctl("provision", provisioned_lab.inventory, *STAGES)


def pending(lab: Lab) -> dict[tuple[str, str], str]:
    """Return what plan would mend, by check and machine."""
    return {(one["id"], one["host"]): one["observed"] for one in labs.document(lab.inventory, "plan")["pending_checks"]}


def of_slurm(lab: Lab) -> str:
    """Return the name by which the machines' own Docker has Slurm's image, which has Python."""
    return lab.root("node1", "docker inspect --format '{{.Config.Image}}' slurmd")


def of_torch(lab: Lab) -> str:
    """Return the name by which the cluster's registry has the image of the training job."""
    stored = json.loads(lab.root("node1", "cat /var/lib/clusterctl/images/overlay-images/images.json"))
    return next(str(name) for image in stored for name in image["names"] if "/ddp@" in name)


def test_who_is_in_the_group_has_the_machines_docker_in_a_job_and_nobody_else(lab: Lab) -> None:
    version = "srun --quiet docker version --format '{{.Server.Version}}'"
    engine = lab.root("node1", "docker version --format '{{.Server.Version}}'")

    assert lab.said(version) == engine
    assert lab.said(version, user="ben") != engine
    assert "Permission denied" in lab.ssh("head", f"srun python3 -c '{TRY}'", user="ben").stderr
    # Each run says what it means, also the one that made it so.
    told = [line for line in CHOSEN if line.startswith("warn ") and " job_docker.risk " in line]
    assert len(told) == 1, "\n".join(CHOSEN)
    assert "who is in dockerjobs is root on this machine" in told[0]
    risk = {
        one["host"]: one
        for one in labs.document(lab.inventory, "preflight")["checks"]
        if one["id"] == "job_docker.risk"
    }
    assert risk["node2"]["verdict"] == "warn"
    assert "who is in dockerjobs is root on this machine" in risk["node2"]["observed"]


TRY = f'import socket; socket.socket(socket.AF_UNIX).connect("{SOCKET}")'


def test_a_container_has_what_the_job_has_and_ends_with_it(lab: Lab) -> None:
    look = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; ls /dev"
    seen = lab.said(
        f"srun --quiet --mem=300 --gres=gpu:1 docker run --rm --gpus all --memory 64g {of_slurm(lab)} sh -c '{look}'"
    ).split()

    assert seen[0] == str(300 * 1024 * 1024)
    assert len([name for name in seen if name in ("nvidia0", "nvidia1")]) == 1
    left = f"docker run --detach --network none {of_slurm(lab)} sleep 600; docker ps --quiet"
    assert lab.said(f"srun --quiet --nodelist=node1 sh -c '{left}'")
    labs.until(lambda: not lab.root("node1", "docker ps --quiet --filter label=clusterctl.job"), "it is still there")


def test_a_container_has_our_programs_and_knows_its_job(lab: Lab) -> None:
    asks = "scontrol show hostname | head -n 1; torchrun-slurm --dry-run true 2>&1 | head -n 1"
    said = lab.said(
        "srun --quiet --nodes=2 --ntasks-per-node=1 docker run --rm --network host --device /dev/infiniband"
        f" {of_slurm(lab)} sh -c '{asks}' 2>/dev/null"
    ).splitlines()

    assert said.count("node1") == 2
    (told,) = (line for line in said if line.startswith("torchrun-slurm: job"))
    assert ", 2 x 1 worker, first node1 at " in told


@pytest.mark.proves("docker_overlay")
def test_a_training_runs_over_the_overlay_network_by_the_containers_names(lab: Lab) -> None:
    lab.ssh("head", f"cat >train.py <<'END'\n{TRAIN}\nEND", user="ada")
    worker = (
        "docker run --rm --name w$SLURM_NODEID-$SLURM_JOB_ID --network test-net -v $HOME/train.py:/train.py:ro"
        " -e RANK=$SLURM_PROCID -e WORLD_SIZE=2 -e MASTER_ADDR=w0-$SLURM_JOB_ID -e MASTER_PORT=29500"
        f" -e GLOO_SOCKET_IFNAME=eth0 {of_torch(lab)} python3 /train.py"
    )

    said = lab.said(f"srun --quiet --nodes=2 --ntasks-per-node=1 --time=5 sh -c '{worker}'").splitlines()

    # The mean of 2 x 1 and 2 x 2.
    assert sorted(line for line in said if line.startswith("rank")) == [
        f"rank {rank} of 2 gradient 3.0" for rank in (0, 1)
    ]


def test_what_is_broken_is_named_and_mended_alone(lab: Lab) -> None:
    assert pending(lab) == {}
    lab.root(
        "node1", "systemctl stop clusterctl-docker.socket; systemctl restart docker; chmod 666 " + SOCKET, check=False
    )
    lab.root("node2", "docker swarm leave --force")
    lab.root("head", "docker network rm test-net")

    found = pending(lab)
    assert set(found) >= {("job_docker.swarm", "node2"), ("job_docker.overlay_networks", "head")}
    assert found["job_docker.swarm", "node2"] == "it is inactive"
    assert found["job_docker.overlay_networks", "head"] == "test-net is absent"
    assert ("job_docker.socket", "node1") in found
    labs.clusterctl("provision", lab.inventory, "containers")
    assert pending(lab) == {}


def test_what_is_taken_out_of_the_inventory_goes_and_the_engine_forgets_its_socket(lab: Lab) -> None:
    file = lab.directory / "group_vars" / "site.yml"
    chosen = json.loads(file.read_text())
    kept = {name: value for name, value in chosen.items() if not name.startswith("job_docker")}
    try:
        file.write_text(json.dumps(kept))
        labs.clusterctl("provision", lab.inventory, "containers")

        assert lab.root("node1", f"ls {SOCKET} /etc/systemd/system/clusterctl-docker.socket", check=False) == ""
        # The engine is in the swarm still, which nobody leaves by itself, and so has no live restore.
        assert lab.root("node1", "docker info --format '{{.LiveRestoreEnabled}} {{.Swarm.LocalNodeState}}'") == (
            "false active"
        )
        assert not [
            name for name, _ in pending(lab) if name.startswith(("job_docker.", "container_engine.", "engine."))
        ]
    finally:
        file.write_text(json.dumps(chosen))
        labs.clusterctl("provision", lab.inventory, "containers")
