"""Every judge answers with all of its names, whatever a machine said: a silent one could not be missed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import driver_machines
import pytest
import rdma_machines
import slurm_worlds as worlds

from provision import judge
from provision.judge import (
    ddp,
    driver,
    gpu_containers,
    gpu_stage,
    gpudirect,
    gpus,
    jobs,
    mig,
    munge,
    nccl,
    rdma,
    rdma_transfers,
    session,
    slurm,
    slurm_daemons,
    toolkit,
)  # fmt: skip
from provision.judge.ddp_evidence import Wants, evidence_from
from provision.judge.ddp_plan import Job, Plan
from provision.judge.jobs import JobFacts
from provision.model.checks import Check, Subject
from provision.nvidia import cuda_toolkit
from provision.rdma.expected import Expected

#: What a machine may print in place of an answer.
TEXTS = (
    "", "garbage", "null", "[]", "{}", "\x1b[2J\u202e{{ x }}", "9" * 5000, '{"a": ' * 500, "== nodes\n{", "\x00",
    worlds.machine(), worlds.controller(),
)  # fmt: skip

#: What it may answer where a structure is expected.
SHAPES: tuple[Any, ...] = (
    None, [], {}, "x", 7, [None], {"results": None}, {"stdout": 7, "rc": "x"}, {"gpu": []}, {"status": 200},
    {"stdout": '{"ServerVersion": "26", "LiveRestoreEnabled": true}', "rc": 0}, {"stdout": "", "rc": 124},
)  # fmt: skip

Told = list[list[Check]]


def of_toolkits(text: str) -> Told:
    asked: list[tuple[list[str], list[dict[str, str]]]] = [(["12.8"], []), (["nonsense"], []), ([], [])]
    return [toolkit.checks(cuda_toolkit.plan(names, found, "580", ""), names, text) for names, found in asked]


def of_daemons(judged: Callable[..., list[Check]]) -> Callable[[str], Told]:
    def all_of(text: str) -> Told:
        daemons = (("slurmd",), ("slurmctld",), ("slurmctld", "slurmd"), ())
        wanted = [
            worlds.wants(daemons=names, gpus=real, gres=gres)
            for names, real, gres in product(daemons, (True, False), ("gpu:A40:4", "", ["gpu:A40:4"]))
        ]
        answers = [(text, text), (None, text), (text, None), (None, None)]
        return [judged(worlds.facts(own, other), want) for want in wanted for own, other in answers]

    return all_of


def of_jobs(text: str) -> Told:
    wanted = [worlds.wants(daemons=names) for names in (("slurmd",), ("slurmctld",), ())]
    plans: list[dict[str, Any]] = [{}, {"refused": text}, {"refused": text, "ordinary": True}]
    return [
        jobs.checks(JobFacts(text, problem, text, planned, text), want, cgroup_version=version, uid=1)
        for want, planned, problem, version in product(wanted, plans, ("", text), (1, 2))
    ]


def of_trainings(text: str) -> Told:
    job = Job({"node1": 1, "node2": 1}, 1, "batch")
    wants = Wants(dict(job.ranks), 1, [], False)
    evidence = [evidence_from(told, text, {"node1": text}, wants, {}, "/x") for told in (None, {}, {"id": text})]
    left = ({}, {"silent": "x"}, {"busy": {"node1": "x"}}, {"apart": {"node1": "x"}}, {"out": {"node1": "x"}})
    idle = [ddp.checks(Plan(**one), []) for one in left]  # type: ignore[arg-type]
    return [*idle, *(ddp.checks(Plan([job]), [one]) for one in evidence), ddp.checks(Plan([job, job]), evidence[:2])]


def of_sessions(text: str) -> Told:
    asked = ([], [("batch", "node1", "-", "pair")], [("batch", "node1", "gpu:1", "alone"), ("a", "node2", "-", "pair")])
    wants = [session.Wants(7, accounting, shared) for accounting, shared in product((True, False), repeat=2)]
    said = (
        text,
        f"session| mark {text}\nbatch:node1| {text}\n",
        f"batch:node1| step {text}\nbatch:node1| signal {text}",
    )
    return [session.checks(one, text, targets, want) for one, targets, want in product(said, asked, wants)]


def of_containers(text: str) -> Told:
    return [
        gpu_containers.checks(text, installed=installed, version="1", packages=["x"], gres=gres)
        for installed, gres in product((True, False), ("gpu:a:1", "", ["gpu:a:1"]))
    ]


def of_instances(text: str) -> Told:
    answers: list[dict[str, Any]] = [{"stdout": text, "rc": 0}, {"stdout": text, "rc": 5}, {"msg": text}, {}]
    return [
        mig.checks(declared, recorded, answer, by_files=files)
        for declared, recorded, answer, files in product((["0:1g.5gb*2"], []), ([], ["x"]), answers, (True, False))
    ]


def of_munge(shape: Any) -> Told:
    seen = {host: munge.Seen.from_results(shape, shape, shape) for host in ("head", "node1")}
    wants = munge.Wants(controller="head", fingerprint="a" * 64, mode="0400", warn=5, fail=30)
    told = munge.checks(seen, wants)
    return [[check for check in told if check.host == host] for host in seen]


#: How each judge of texts, and each of structures, is called.
OF_TEXTS: dict[str, tuple[Callable[[str], Told], Sequence[Subject]]] = {
    "ddp": (of_trainings, (ddp.SUBJECT, nccl.SUBJECT)),
    "gpu_containers": (of_containers, (gpu_containers.SUBJECT,)),
    "gpus": (of_daemons(gpus.checks), (gpus.SUBJECT,)),
    "jobs": (of_jobs, (jobs.SUBJECT,)),
    "mig": (of_instances, (mig.SUBJECT,)),
    "nccl": (lambda text: [nccl.checks(logs) for logs in ({}, {"a": text}, {"a": text, "b": text})], (nccl.SUBJECT,)),
    "session": (of_sessions, (session.SUBJECT,)),
    "slurm": (of_daemons(slurm.checks), (slurm.SUBJECT,)),
    "slurm_daemons": (of_daemons(slurm_daemons.checks), (slurm_daemons.SUBJECT,)),
    "toolkit": (of_toolkits, (toolkit.SUBJECT,)),
}
OF_SHAPES: dict[str, tuple[Callable[[Any], Told], Sequence[Subject]]] = {
    "driver": (lambda shape: [driver.checks(shape, driver_machines.WANTS)], (driver.SUBJECT,)),
    "gpudirect": (lambda shape: [gpudirect.checks(shape, {"required": True})], (gpudirect.SUBJECT,)),
    "munge": (of_munge, (munge.SUBJECT,)),
}

#: Judged below, or where their typed facts are made: what is not of their type does not pass the door before them.
ELSEWHERE = {
    "base_system", "cluster_users", "ddp_job", "ddp_ready", "engine", "hardware", "images", "job_docker", "job_images",
    "monitoring", "nfs_server", "preflight", "rdma", "rdma_ports", "rdma_transfers", "shared_storage", "slurm_accounts",
    "slurm_client", "slurm_conf", "slurm_database", "slurm_image", "slurm_running", "users_before",
}  # fmt: skip


def whole(told: Told, subjects: Sequence[Subject]) -> None:
    assert told
    for checks in told:
        assert {check.id for check in checks} == {name for subject in subjects for name in subject.ids}


def test_every_judge_that_has_a_subject_is_asked() -> None:
    modules = {
        module.name
        for module in pkgutil.iter_modules(judge.__path__)
        if hasattr(importlib.import_module(f"provision.judge.{module.name}"), "SUBJECT")
    }

    assert modules == {*OF_TEXTS, *OF_SHAPES, *ELSEWHERE}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:12]))
@pytest.mark.parametrize("name", OF_TEXTS)
def test_a_judge_of_texts_gives_all_of_its_checks(name: str, text: str) -> None:
    judged, subjects = OF_TEXTS[name]

    whole(judged(text), subjects)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape)[:20])
@pytest.mark.parametrize("name", OF_SHAPES)
def test_a_judge_of_structures_gives_all_of_its_checks(name: str, shape: Any) -> None:
    judged, subjects = OF_SHAPES[name]

    whole(judged(shape), subjects)


@pytest.mark.parametrize("name", driver_machines.names())
def test_every_state_of_a_driver_gives_all_of_its_checks(name: str, tmp_path: Path) -> None:
    machine, case = driver_machines.machine(name, tmp_path)

    whole([driver.checks(machine, driver_machines.wants(case))], (driver.SUBJECT,))


@pytest.mark.parametrize("name", ["", *driver_machines.names()])
def test_the_stage_of_the_driver_gives_each_of_its_checks_once(name: str, tmp_path: Path) -> None:
    machine, case = driver_machines.machine(name, tmp_path) if name else ({"gpu": []}, {})

    told = gpu_stage.nvidia_driver(machine, {**driver_machines.wants(case), "compute": True, "kept": False})

    whole([told], (driver.SUBJECT, driver.BEFORE, gpu_stage.PLANNED))
    # There is a module for each kernel.
    assert len(told) == len({(check.id, check.observed) for check in told})


@pytest.mark.parametrize("wanted", ["auto", "always", "never"])
@pytest.mark.parametrize("adapters", [0, 1])
def test_machines_with_and_without_adapters_give_all_checks_of_rdma(tmp_path: Path, adapters: int, wanted: str) -> None:
    for number in range(adapters):
        port = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "100 Gb/sec (4X EDR)"}
        rdma_machines.device(tmp_path, f"mlx5_{number}", port)
    found = rdma_machines.found(tmp_path)
    ofed = {"kind": "none", "version": "", "fingerprints": []}
    settings = {"wanted": wanted, "declared": {}, "memlock": "unlimited", "simulated": [], "ofed": ofed}
    step = {"peer": "node2", "serves": False, "bandwidth": True, "rails": [{"device": "mlx5_0"}]}
    steps: Sequence[dict[str, Any]] = ({}, {"node1": [step]})
    plans = [{"steps": one, "unused": {}, "pairs": ""} for one in steps]
    measured = {"simulated": False, "share": 0.8}

    whole([rdma.checks(found, Expected(), settings)], (rdma.SUBJECT,))
    whole(
        [
            rdma_transfers.checks(moved, "node1", found, plan, measured)
            for moved in ({}, {"results": []}, {"msg": "x"})
            for plan in plans
        ],
        (rdma_transfers.SUBJECT,),
    )
