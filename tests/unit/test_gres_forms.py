"""node_gres as text and as a list is one thing to all who read it: a GPU that is missing is missed by each of them."""

from __future__ import annotations

from typing import Any

import pytest
import slurm_worlds
import test_ddp_judge
import test_nvidia_containers
from machines import plugin

from provision.judge import ddp, hardware, slurm
from provision.judge.ddp_evidence import Wants, evidence_from
from provision.judge.ddp_plan import Job, Plan

declared_by = plugin("plugins/lookup/declared.py").LookupModule()

#: What a machine with two A40 says of itself, to the judge of hardware.
MACHINE: dict[str, Any] = {
    **{"cpus": 8, "sockets": 1, "cores_per_socket": 8, "threads_per_core": 1, "cgroup_version": 2},
    **{"real_memory": 8000, "gres": "gpu:A40:2", "gpu_count": 2, "gpu_source": "nvidia-smi", "gpus_on_bus": 2},
}


def of_hardware(declared: object) -> str:
    found = {check.id: check for check in hardware.checks(MACHINE, {"node_gres": declared})}  # type: ignore[arg-type]
    return str(found["hardware.gres"].verdict)


def of_slurm(declared: object) -> str:
    node = slurm_worlds.node(gres="gpu:A40:2(S:0-1)")
    devices = slurm_worlds.DEVICES.replace("Count=4", "Count=2").replace("[0-3]", "[0-1]")
    facts = slurm_worlds.facts(
        slurm_worlds.machine(devices=slurm_worlds.coded(devices)), slurm_worlds.controller([node])
    )
    return slurm_worlds.verdicts(slurm.checks(facts, slurm_worlds.wants(gres=declared)))["gres"]


def of_containers(declared: object) -> str:
    return str(test_nvidia_containers.judged(declared)["cdi"]["verdict"])


def of_training(declared: object) -> str:
    found = test_ddp_judge.evidence()
    hostvars = {name: {"node_gres": declared} for name in ("node1", "node2")}
    (wanted,) = declared_by.run(["ranks"], {"groups": {"slurm_compute": ["node1", "node2"]}, "hostvars": hostvars})
    left = {node: test_ddp_judge.json.dumps(told) for node, told in found["nodes"].items()}
    wants = Wants(wanted, wanted["node1"], ["gpu"], False)
    read = evidence_from(found["job"], "", left, wants, {}, "/x")
    told = ddp.checks(Plan([Job(wanted, wanted["node1"], "batch")]), [read])
    return str(next(check.verdict for check in told if check.id == "ddp.result"))


@pytest.mark.parametrize("judged", [of_hardware, of_slurm, of_containers, of_training])
@pytest.mark.parametrize("form", ["gpu:A40:{}", ["gpu:A40:{}"]], ids=["text", "list"])
def test_a_missing_gpu_is_missed_however_node_gres_is_written(judged: Any, form: str | list[str]) -> None:
    def written(count: int) -> object:
        return form.format(count) if isinstance(form, str) else [word.format(count) for word in form]

    assert judged(written(2)) == "pass"
    assert judged(written(3)) == "fail"
