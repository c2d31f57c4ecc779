"""Draining a node for work on it, against the real Slurm: its jobs end first, and only our own drain is taken back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import labs
import pytest
import yaml

from provision import content
from provision.inventory import loader
from provision.inventory.valid import declared
from provision.slurm.render import render

REASON = "clusterctl: a test"


def slurm(lab: labs.Lab, *words: str, user: str = "0:0") -> str:
    """Run one of Slurm's commands on the controller."""
    return labs.docker("exec", lab.container("head"), "docker", "exec", "--user", user, "slurmctld", *words)


def state(lab: labs.Lab) -> tuple[set[str], str]:
    """Return the node's state and the reason that it bears."""
    node = lab.node("node1")
    return set(node.state), node.reason


def submit(lab: labs.Lab, seconds: int) -> str:
    """Have a job run on the node, and return its number once it does."""
    told = slurm(lab, "sbatch", "--parsable", "--time=30", "--nodelist=node1", "--chdir=/", "--output=/dev/null",
                 f"--wrap=sleep {seconds}", user=labs.PROVES)  # fmt: skip
    labs.until(lambda: lab.state(told) == "RUNNING", lambda: lab.state(told))
    return told


def node(lab: labs.Lab, wanted: str, **options: Any) -> dict[str, Any]:
    """Run the module as a role does, and return its result."""
    arguments = json.dumps({"names": ["node1"], "state": wanted, "reason": REASON, **options})
    command = [labs.BIN / "ansible", "head", "-i", lab.inventory, "--become", "-m", "slurm_node", "-a", arguments]
    environment = {"ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg"), "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1",
                   "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"}  # fmt: skip
    told = json.loads(labs.run(command, check=False, env=environment).stdout)
    result: dict[str, Any] = told["plays"][0]["tasks"][0]["hosts"]["head"]
    return result


@pytest.fixture
def lab(provisioned_lab: labs.Lab) -> Any:
    """The shared machines, with node1 given back to Slurm whatever happens."""
    yield provisioned_lab
    slurm(provisioned_lab, "scancel", f"--user={labs.PROVES.partition(':')[0]}")
    if "DRAIN" in state(provisioned_lab)[0]:
        slurm(provisioned_lab, "scontrol", "update", "NodeName=node1", "State=UNDRAIN")


def test_a_job_ends_before_its_node_is_worked_on_and_the_node_comes_back(lab: labs.Lab) -> None:
    job = submit(lab, 8)

    drained = node(lab, "drained", wait=300)
    left = slurm(lab, "squeue", "--noheader", "--nodelist=node1")
    during = state(lab)
    resumed = node(lab, "resumed")

    assert drained["drained"] == ["node1"], drained
    assert left == ""
    assert "DRAIN" in during[0]
    assert during[1].startswith(REASON)
    assert resumed["changed"]
    assert "DRAIN" not in state(lab)[0]
    assert lab.state(job) == "COMPLETED"


def test_a_job_that_does_not_end_in_time_keeps_its_node_and_goes_on(lab: labs.Lab) -> None:
    job = submit(lab, 1200)

    result = node(lab, "drained", wait=6)

    assert result["failed"]
    assert f"jobs {job} were still running on node1" in result["msg"]
    assert "DRAIN" not in state(lab)[0]
    assert lab.state(job) == "RUNNING"


def test_a_node_that_somebody_else_has_drained_stays_theirs(lab: labs.Lab) -> None:
    slurm(lab, "scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=bad fan")

    drained, resumed = node(lab, "drained", wait=30), node(lab, "resumed")

    assert not drained["changed"]
    assert not resumed["changed"]
    assert "DRAIN" in state(lab)[0]
    assert state(lab)[1].startswith("bad fan")


def test_a_node_that_an_administrator_has_set_down_stays_down_whatever_starts_anew(lab: labs.Lab) -> None:
    slurm(lab, "scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=bad disk")
    try:
        since = lab.registered("node1")
        lab.root("node1", "docker restart --time 60 slurmd")
        labs.until(lambda: lab.registered("node1") > since)

        done = labs.document(lab.inventory, "provision", "slurm")

        assert (done["exit_code"], done["changed"]) == (0, 0), done["failures"]
        assert "DOWN" in state(lab)[0]
        assert state(lab)[1].startswith("bad disk")
    finally:
        slurm(lab, "scontrol", "update", "NodeName=node1", "State=RESUME")
        labs.until(lambda: "DOWN" not in state(lab)[0])


@contextmanager
def kathmandu(lab: labs.Lab, machine: str) -> Iterator[None]:
    """Have a machine keep the time of Kathmandu, a quarter of an hour beside the hours of others."""
    zone = lab.root(machine, "readlink /etc/localtime || true")
    lab.root(machine, "ln -sfn /usr/share/zoneinfo/Asia/Kathmandu /etc/localtime")
    try:
        yield
    finally:
        lab.root(machine, f"ln -sfn '{zone}' /etc/localtime" if zone else "rm /etc/localtime")


def test_another_role_can_have_a_slurmd_made_anew_as_the_controller_declares_it(lab: labs.Lab, tmp_path: Path) -> None:
    # The engine tells mounts in any order.
    ask = "docker inspect --format '{{.Config.Image}}{{range .HostConfig.Binds}} {{.}}{{end}}' slurmd"
    declared = sorted(lab.root("node1", ask).split())
    printed = "journalctl --no-pager --output=cat CONTAINER_NAME=slurmd"
    last = lab.root("node1", f"{printed} --lines=1")
    with kathmandu(lab, "node1"):
        lab.root("node1", "docker rm --force slurmd")
        done = labs.tasks(lab.inventory, "node1", "slurm_service", "renew", tmp_path, ansible_become=True)

        assert done.returncode == 0, done.stdout
        assert sorted(lab.root("node1", ask).split()) == declared
        # What it prints has the machine's time, and what the one before has printed is still there.
        assert lab.root("node1", "docker exec slurmd date +%z") == "+0545"
        lab.root("node1", "journalctl --rotate")
        assert last in lab.root("node1", f"{printed} --lines=1000").splitlines()
    lab.root("node1", "docker restart --time 60 slurmd")


def test_this_slurm_detects_gpus_from_the_driver_as_gres_conf_asks_it_to(lab: labs.Lab) -> None:
    # slurmd itself is the question; the driver's files are stand-ins that nothing else sees.
    inside = ["docker", "exec", "--interactive", "slurmd", "unshare", "--mount", "sh", "-s", "node1"]
    script = (Path(__file__).parent / "detect-gpus").read_text(encoding="utf-8")
    told = labs.run(["docker", "exec", "--interactive", lab.container("node1"), *inside], input=script).stdout

    # By the type that the inventory declares, which is a part of the driver's name in another spelling.
    found = re.findall(r"Gres Name=gpu Type=A40 Count=1 .*File=/dev/nvidia([01])", told)
    assert sorted(found) == ["0", "1"], told


@pytest.mark.parametrize(
    ("detection", "affinity", "state"),
    [("auto", "numa", "idle none"), ("nvidia", "socket", "inval gres/gpu GRES")],
)
def test_a_machine_of_many_numa_nodes_registers_with_device_files_alone(
    lab: labs.Lab, tmp_path: Path, detection: str, affinity: str, state: str
) -> None:
    # Slurm's daemons are the question: what they say of the configuration that this machine gets by default.
    topology = Path(__file__).parents[2] / "unit/fixtures/gpu_topology.yml"
    machine = yaml.safe_load(topology.read_text(encoding="utf-8"))["dgx_a100"]
    hardware = {
        "node_cpus": 256, "node_sockets": 2, "node_cores_per_socket": 64, "node_threads_per_core": 2,
        "node_real_memory": 1000, "node_gres": "gpu:a100:8", "node_gpu_affinity": affinity,
    }  # fmt: skip
    compute = {"hosts": {"dgx01": {}}, "vars": hardware}
    groups = {"slurm_controller": {"hosts": {"head": {}}}, "slurm_compute": compute}
    inventory = tmp_path / "inventory.yml"
    site = {"cluster_name": "dgx", "slurm_conf_gpu_detection": detection}
    inventory.write_text(yaml.safe_dump({"all": {"children": groups, "vars": site}}))
    texts = render(declared(loader.load(inventory)))
    image = lab.root("node1", "docker inspect --format '{{.Config.Image}}' slurmd").strip()
    inside = ["docker", "run", "--rm", "--interactive", "--hostname=head", "--cap-add=SYS_ADMIN",
              "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined", "--entrypoint=sh",
              image, "-s"]  # fmt: skip
    script = (Path(__file__).parent / "register-gpus").read_text(encoding="utf-8")
    words = [texts["slurm.conf"], texts["gres.conf"], *machine["gpus"]]
    told = labs.run(["docker", "exec", "--interactive", lab.container("node1"), *inside, *words], input=script).stdout

    assert told.startswith(state), told
