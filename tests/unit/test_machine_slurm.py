"""What a machine says of its containers, its users and its daemons' configuration; every question has an end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from machines import hosts, plugin, tree

from provision.judge import ddp_ready, road
from provision.model.checks import Verdict
from provision.model.facts import facts_from
from provision.model.proof import ProofUser

state = plugin("plugins/module_utils/machine_state.py")
slurm = plugin("plugins/module_utils/machine_slurm.py")

INSPECTED = json.loads((Path(__file__).parent / "fixtures/containers/slurmd.json").read_text())
CONFIG = "SLURM_VERSION = 24.11.5\nBOOT_TIME               = 1000\nHASH_VAL                = Match\n"
LOW = {"state": ["IDLE", "DRAIN"], "reason": "Low RealMemory (reported:1 < 100.00% of configured:2)",
       "reason_set_by_user": "slurm"}  # fmt: skip
Run = Callable[[list[str], float], tuple[int | None, str]]
LATE = "did not answer in 10 s"


def says(code: int | None, said: str = "") -> Run:
    return lambda command, seconds: (code, said)


def asked(root: Path, run: Run) -> Any:
    return state.containers(root, ["slurmd", "slurmctld"], run=run)


def test_the_engine_is_asked_once_for_all_names_and_says_what_there_is(tmp_path: Path) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], seconds: float) -> tuple[int, str]:
        commands.append(command)
        more = {**INSPECTED, "Id": "c5b9", "NetworkSettings": {}, "Config": {**INSPECTED["Config"], "Env": ["A=b"]}}
        return 1, json.dumps([more], indent=1) + "\nError: No such container: slurmctld\n"

    found = asked(tree(tmp_path, {"proc/1/status": "CapBnd:\t000001ffffffffff\n"}), run)

    assert commands == [["docker", "container", "inspect", "slurmd", "slurmctld"]]
    assert set(found["found"]) == {"slurmd"}
    assert found["found"]["slurmd"]["HostConfig"] == INSPECTED["HostConfig"]
    assert "NetworkSettings" not in found["found"]["slurmd"]
    assert (found["problem"], found["raised"], found["nvidia_driver"]) == ("", True, "")


def test_an_engine_that_is_not_there_or_refuses_is_an_answer_and_one_that_hangs_is_none(tmp_path: Path) -> None:
    refuses = asked(tmp_path, says(1, "[]\nCannot connect to the Docker daemon\n"))

    assert (refuses["found"], refuses["problem"]) == ({}, "Cannot connect to the Docker daemon")
    assert asked(tmp_path, says(None, ""))["problem"] == "docker: no such program"
    assert asked(tmp_path, says(0, "[nonsense"))["found"] == {}
    assert asked(tmp_path, says(None, LATE)) is None
    assert state.containers(tmp_path, []) == {}


ENTRIES = [{"address": "10.0.0.1", "names": ["head"]}, {"address": "10.0.0.2", "names": ["node1"]}]


@pytest.mark.parametrize(
    ("machine", "copy", "names"),
    [
        pytest.param(ENTRIES, ENTRIES, True, id="as they are"),
        pytest.param(ENTRIES, ENTRIES[:1], False, id="a machine has come since it was started"),
        pytest.param([], ENTRIES[:1], False, id="the machine's own file is about to be written"),
        pytest.param(None, ENTRIES[:1], None, id="the site keeps its names elsewhere"),
        pytest.param(ENTRIES, None, None, id="never started"),
    ],
)
def test_containers_say_whether_they_know_the_clusters_machines(
    tmp_path: Path, machine: Any, copy: Any, names: bool | None
) -> None:
    texts = [hosts.planned("127.0.0.1 localhost\n", one, []) if one is not None else "" for one in (machine, copy)]
    root = tree(tmp_path, {"etc/hosts": texts[0], **({"docker/hosts": texts[1]} if copy is not None else {})})
    told = json.dumps([{**INSPECTED, "HostsPath": "/docker/hosts"}])

    found = {
        asked: state.containers(root, ["slurmd"], run=says(0, told), hosts={"entries": ENTRIES, "containers": [asked]})
        for asked in ("slurmd", "slurmctld")
    }

    assert found["slurmd"]["found"]["slurmd"]["names"] is names
    assert "names" not in found["slurmctld"]["found"]["slurmd"], "it was not asked for"


def test_a_container_may_raise_limits_only_where_process_1_may() -> None:
    assert state.can_raise_limits("CapBnd:\t0000000001000000\n")
    assert not state.can_raise_limits("CapBnd:\t00000000a80425fb\n")
    assert not state.can_raise_limits("")


def test_users_and_the_images_in_a_store_are_told_as_they_are(tmp_path: Path) -> None:
    images = json.dumps([{"names": ["a@sha256:1"]}, {"names": None}, {"names": ["b@sha256:2"]}])
    root = tree(tmp_path, {"store/overlay-images/images.json": images, "bad/overlay-images/images.json": "{"})

    assert state.users(["root", "no-such-user"])["root"]["uid"] == 0
    assert "no-such-user" not in state.users(["root", "no-such-user"])
    assert state.stored_images(root, "/store") == ["a@sha256:1", "b@sha256:2"]
    assert state.stored_images(root, "/bad") == []
    assert state.stored_images(root, "/none") == []


def slurmctld(run: Run, known: tuple[Any, Any] = (1000, {"slurm.conf": "a"})) -> dict[str, Any]:
    record = slurm.slurm_running.Running(*known, "10.0.0.1\thead", 0)
    told: dict[str, Any] = slurm.slurmctld("slurmctld", {"slurm.conf": "a"}, 900.0, record, 10, run=run)
    facts_from({"slurm": {"files": {}, "start": "", "slurmctld": told}})
    return told


def nodes(*entries: dict[str, Any], address: str = "10.0.0.1") -> str:
    return CONFIG + f"== hosts\n950\n{address}\thead\n== nodes\n" + json.dumps({"nodes": list(entries)})


def test_slurmctld_says_since_when_it_runs_and_which_nodes_may_come_back() -> None:
    said = nodes(
        {"name": "node1", **LOW}, {"name": "node2", "state": ["IDLE"]}, {**LOW, "name": "node3", "reason": "fan"}
    )

    assert slurmctld(says(0, said)) == {
        "answered": True, "late": False, "problem": "", "current": True, "resume": ["node1"],
    }  # fmt: skip
    assert not slurmctld(says(0, said), (1000, {"slurm.conf": "b"}))["current"]
    assert not slurmctld(says(0, nodes(address="10.0.0.9")))["current"]


@pytest.mark.parametrize("said", ["[]", '{"nodes": 3}', '{"nodes": [3]}', "{" * 99])
def test_of_nodes_that_cannot_be_read_nobody_knows_whether_they_come_back(said: str) -> None:
    assert "resume" not in slurmctld(says(0, CONFIG + "== hosts\n== nodes\n" + said))


@pytest.mark.parametrize("said", ["", '{"nodes": [{}]}'])
def test_where_slurmctld_keeps_no_node_out_none_comes_back(said: str) -> None:
    assert slurmctld(says(0, CONFIG + "== hosts\n== nodes\n" + said))["resume"] == []


@pytest.mark.parametrize(("code", "late"), [(1, False), (124, True), (137, True), (None, True)])
def test_a_slurmctld_that_does_not_answer_is_late_or_says_why(code: int | None, late: bool) -> None:
    told = slurmctld(says(code, "Error response from daemon: container is not running\n"))

    assert (told["answered"], told["late"]) == (False, late)
    assert "not running" in told["problem"]


def test_files_are_told_by_checksum_and_slurmdbds_password_never(tmp_path: Path) -> None:
    conf = "ClusterName=a\nMessageTimeout=3\nAuthInfo=cred_expire=119\n"
    root = tree(tmp_path, {
        "etc/slurm/slurm.conf": conf, "etc/slurm/slurmdbd.conf": "StoragePass=secret\n", "cache/slurm.conf": "x",
    })  # fmt: skip

    of_node = slurm.collect(root, {"cache": "/cache"})
    files = slurm.checksums.sums(slurm.slurm_running.read(root / "etc/slurm"))

    assert of_node == {"fetched": {"slurm.conf": sha256(b"x").hexdigest()}}
    assert files == {"slurm.conf": sha256(conf.encode()).hexdigest()}
    assert slurm.slurm_running.AT_START.findall(conf) == ["ClusterName=a", "AuthInfo=cred_expire=119"]
    assert slurm.collect(root, {"cache": "/none"}) == {"fetched": {}}


def test_of_which_cluster_a_machine_keeps_something_is_read(tmp_path: Path) -> None:
    ask = {"belongs": {"state": "/state/clustername", "conf": "/cache/slurm.conf"}}
    nothing = slurm.collect(tmp_path, ask)
    (tmp_path / "state").mkdir()
    (tmp_path / "state/clustername").write_text("lab|1234\n")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/slurm.conf").write_text("# made\nClusterName=lab\nSlurmctldHost=head(10.0.0.1)\n")

    assert nothing == {"saved": "", "cluster": "", "controller": ""}
    assert slurm.collect(tmp_path, ask) == {"saved": "lab", "cluster": "lab", "controller": "head"}
    assert road.handed_on(facts_from({"slurm": {"saved": "lab"}}))["cluster_shared"]["saved"] == "lab"


def test_slurmd_runs_with_what_it_fetched_before_it_came_up(tmp_path: Path) -> None:
    root = tree(tmp_path, {"cache/slurm.conf": "x", "cache/unread": "x"})
    asked = {"cache": "/cache", "ready": "/ready"}
    assert "taken_up" not in slurm.collect(root, asked), "an earlier release noted nothing"
    time.sleep(0.01)
    (tmp_path / "ready").touch()
    assert slurm.collect(root, asked)["taken_up"] is True

    time.sleep(0.01)
    (tmp_path / "cache/unread").write_text("y")
    assert slurm.collect(root, asked)["taken_up"] is True
    (tmp_path / "cache/slurm.conf").write_text("y")
    assert slurm.collect(root, asked)["taken_up"] is False
    time.sleep(0.01)
    (tmp_path / "ready").touch()
    assert slurm.collect(root, asked)["taken_up"] is True


PROOF = ProofUser("slurmtest", 64031, 64031, ("slurmtest",), "/home/slurmtest")
USER = {"uid": 64031, "gid": 64031, "home": "/home/slurmtest", "shell": "/bin/bash"}
REFERENCE = "head:5000/clusterctl/ddp@sha256:" + "a" * 64
NAME = "localhost/pytorch:cluster"


def ready(
    users: dict[str, Any], stored: list[str], image: dict[str, str] | None = None, **other: Any
) -> dict[str, Any]:
    told = {"paths": {}, "packages": {}, "services": {}, "manager": {}, "users": users, "stores": {"/store": stored}}
    wants = {"user": PROOF.as_dict(), "builds": False, "compute": True, "unbuilt": "", "verify": False,
             "reference": REFERENCE, "name": NAME, "store": "/store", **other}  # fmt: skip
    found = ddp_ready.checks(facts_from({"state": told, **({"images": {"ddp": image}} if image else {})}), wants)
    assert {check.id for check in found} == {*ddp_ready.SUBJECT.ids, *ddp_ready.BEFORE.ids}
    return {check.id.rpartition(".")[2]: check.verdict for check in found}


def test_a_machine_is_ready_for_the_proof_with_its_user_and_the_image_in_its_store() -> None:
    assert ready({"slurmtest": USER}, [REFERENCE, NAME]) == {
        "user": Verdict.PASS, "source": Verdict.SKIP, "image": Verdict.SKIP, "stored": Verdict.PASS,
    }  # fmt: skip
    assert ready({}, [])["user"] is Verdict.FAIL
    assert ready({"slurmtest": {**USER, "uid": 1000}}, [])["user"] is Verdict.FAIL
    assert ready({"slurmtest": {**USER, "shell": "/bin/false"}}, [])["user"] is Verdict.FAIL
    assert ready({}, ["another@sha256:0"])["stored"] is Verdict.FAIL
    assert ready({}, [REFERENCE])["stored"] is Verdict.FAIL
    assert ready({}, [REFERENCE], name="")["stored"] is Verdict.PASS
    assert ready({}, [], reference="")["stored"] is Verdict.FAIL
    assert ready({}, [REFERENCE], reference=None)["stored"] is Verdict.UNKNOWN
    assert ready({}, [], compute=False)["stored"] is Verdict.SKIP
    assert ready({}, [], builds=True)["image"] is Verdict.UNKNOWN


def test_without_an_image_to_train_with_slurm_runs_and_the_cluster_is_unproven() -> None:
    none = {"reference": "", "problem": "not built", "lacking": "/srv/none: No such file or directory"}
    there = {"builds": True, "reference": ""}

    first, tried = ready({}, [], none, **there), ready({}, [], none, unbuilt="pip found no torch", **there)
    verdict = ready({}, [], none, verify=True, **there)

    assert (first["source"], first["image"], first["stored"]) == (Verdict.WARN, Verdict.FAIL, Verdict.FAIL)
    assert (tried["image"], tried["stored"]) == (Verdict.WARN, Verdict.SKIP)
    assert (verdict["image"], verdict["stored"]) == (Verdict.UNKNOWN, Verdict.SKIP)


def test_only_what_slurmctld_hands_to_nodes_is_read(tmp_path: Path) -> None:
    for name in ("gres.conf", "old.conf", "slurmdbd.conf", "site.sh", "other.sh", "jwt_hs256.key"):
        (tmp_path / name).write_text("x")
    (tmp_path / "slurm.conf").write_text("Prolog=/opt/own\nPROLOG=site.sh\n")

    assert set(slurm.slurm_running.read(tmp_path)) == {"slurm.conf", "gres.conf", "site.sh"}
