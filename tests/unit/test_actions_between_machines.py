"""What one machine's proof needs of the others: read from all machines' variables in one place, by our own actions."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import test_ddp_judge
import test_judge_munge
from ansible.errors import AnsibleLookupError
from machines import act, plugin

from provision.judge import ddp, munge

munge_proof = plugin("roles/munge/action_plugins/munge_proof.py")
munge_compared = plugin("roles/munge/action_plugins/munge_compared.py")
jobs_planned = plugin("roles/slurm_service/action_plugins/slurm_jobs_planned.py")
ddp_planned = plugin("roles/ddp_validation/action_plugins/ddp_planned.py")
ddp_judged = plugin("roles/ddp_validation/action_plugins/ddp_judged.py")
declared = plugin("plugins/lookup/declared.py").LookupModule()

HOSTS = ["head", "node1", "node2"]
MADE = {"made": "proof", "controller": "head"}


class Machine:
    """A machine that is asked modules: what it was asked, and its answer."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    def __call__(self, module_args: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.asked.append(module_args)
        return self.answer


def decoding(own: Any, hostvars: dict[str, Any], machine: Machine) -> dict[str, Any]:
    variables = {"inventory_hostname": "node1", "hostvars": hostvars, "proof": own}
    return act(munge_proof, {"decode": True, "hosts": HOSTS, **MADE}, machine, **variables)


def test_a_machine_decodes_what_the_others_that_are_left_have_made_and_its_clock_is_measured_by_it() -> None:
    proofs = {host: {"proof": {"credential": f"MUNGE:{host}:"}} for host in [*HOSTS, "node3"]}
    machine = Machine(decoded={"head": {"status": "Success (0)"}}, clock={"begun": 0.0, "ended": 1.0})

    found = decoding(proofs["node1"]["proof"], proofs, machine)

    assert machine.asked == [{"credentials": {"head": "MUNGE:head:", "node2": "MUNGE:node2:"}}]
    assert found["decoded"] == {"head": {"status": "Success (0)"}}
    assert found["clock_offset"]["high"] < -1.7e9


@pytest.mark.parametrize("clock", [None, "noon", {"begun": "now", "ended": 1.0}, {"begun": float("nan"), "ended": 1.0}])
def test_a_clock_that_is_none_is_not_measured(clock: Any) -> None:
    assert decoding({}, {host: {} for host in HOSTS}, Machine(clock=clock))["clock_offset"] is None


def test_a_machine_whose_munged_hangs_decodes_nothing_and_still_tells_its_time() -> None:
    proofs = {host: {"proof": {"credential": "MUNGE:x"}} for host in HOSTS}
    machine = Machine(clock={"begun": 0.0, "ended": 0.0})

    assert decoding({"hung": True}, proofs, machine)["clock_offset"]
    assert machine.asked == [{"credentials": {}}]


def test_munges_answers_are_compared_of_all_machines_that_are_left_and_of_no_other() -> None:
    odd = test_judge_munge.proof(key={"fingerprint": test_judge_munge.ODD})
    answers = {
        host: {
            "proof": odd if host == "node2" else test_judge_munge.proof(),
            "decoded": test_judge_munge.decoded(*munge.peers(HOSTS, host, "head")) | test_judge_munge.clock(),
        }
        for host in [*HOSTS, "node3"]
    }
    wants = {"controller": "head", "fingerprint": test_judge_munge.KEY, "mode": "0400", "warn": "5", "fail": "30"}

    found = act(
        munge_compared,
        {"hosts": HOSTS, "made": "proof", "decoded": "decoded", "wants": wants},
        hostvars=answers,
    )["checks"]

    assert {host: {check["id"] for check in checks} for host, checks in found.items()} == {
        host: set(munge.SUBJECT.ids) for host in HOSTS
    }
    assert [
        (check["host"], check["id"]) for checks in found.values() for check in checks if check["verdict"] != "pass"
    ] == [("node2", "munge.same_key")]


NODES = {"nodes": [{"name": name, "state": ["IDLE"], "partitions": ["batch"]} for name in ("node1", "node2")]}
PARTITIONS = {"partitions": [{"name": "batch", "partition": {"state": ["UP"]}, "groups": {"allowed": ""}}]}
SAID = (
    f"== nodes\n{json.dumps(NODES)}\n\ncode 0\n== partitions\n{json.dumps(PARTITIONS)}\n\ncode 0\n== queue\n\ncode 0\n"
)
STOPPED = "== containers\n[]\n== engine\nError: No such container: slurmd\n== munge\n\ncode 0\n"


def test_no_job_is_given_to_a_node_whose_own_answer_says_that_slurmd_is_gone() -> None:
    hostvars = {"node1": {}, "node2": {"answer": {"stdout": STOPPED}}, "node3": {}}
    args = {
        "said": SAID,
        "scope": ["node1", "node2"],
        "user": {"groups": ["slurmtest"], "accounts": [], "qos": "", "reservation": ""},
        "machines": "answer",
    }

    found = act(jobs_planned, args, hostvars=hostvars)

    planned = found["ansible_facts"]["cluster_jobs_planned"]
    assert found["words"] == ["node1", "batch", "-"]
    assert planned["node1"]["refused"] == ""
    assert "slurmd" in planned["node2"]["refused"]
    assert sorted(planned) == ["node1", "node2"]


def test_who_submits_is_compared_with_what_partitions_say_and_the_proof_of_training_is_told() -> None:
    rules = {"name": "paid", "partition": {"state": ["UP"]}, "accounts": {"allowed": "gold"}}
    said = SAID.replace(json.dumps(PARTITIONS), json.dumps({"partitions": [*PARTITIONS["partitions"], rules]}))
    user = {"groups": ["slurmtest"], "accounts": ["test", "root"], "qos": "", "reservation": ""}
    args = {"said": said, "scope": [], "user": user, "machines": "answer"}

    facts = act(jobs_planned, args, hostvars={})["ansible_facts"]

    assert facts["cluster_partitions_foreign"] == {"paid": "AllowAccounts"}


SINFO = "node1|batch*|up|idle|none\nnode2|batch*|up|idle|none\nnode3|batch*|up|idle|none\n"


def training(facts: dict[str, Any], scope: list[str], **node3: Any) -> dict[str, Any]:
    names = ("node1", "node2", "node3")
    hostvars: dict[str, Any] = {name: {"node_gres": "gpu:A40:2"} for name in names}
    hostvars["node3"] |= node3
    return act(
        ddp_planned,
        {
            "sinfo": SINFO,
            "ranks": dict.fromkeys(names, 2),
            "scope": scope,
            "partition": "",
            "foreign": {},
            "reservation": "",
        },
        delegate_to="head",
        hostvars=hostvars,
        ansible_delegated_vars={"head": {"ansible_facts": facts}},
    )


def test_training_is_planned_by_what_nodes_declare_and_by_what_became_of_their_own_jobs() -> None:
    tried = {"node1": {}, "node2": {"refused": "slurmd is gone", "ordinary": False}, "node3": {}}

    found = training({"cluster_jobs_planned": tried}, ["node1", "node2", "node3"], node_mig="1g.10gb")

    assert found["ansible_facts"]["cluster_ddp_planned"]["out"] == {"node2": "slurmd is gone"}
    assert list(found["apart"]) == ["node3"]
    assert json.loads(found["arguments"]) == [{"expect": {"node1": 2}, "gpus": 2, "partition": "batch"}]


def test_no_training_is_given_to_a_node_that_was_lost_before_its_own_job_was_planned() -> None:
    found = training({"cluster_jobs_planned": {"node1": {}, "node3": {}}}, ["node1", "node2", "node3"])

    assert found["ansible_facts"]["cluster_ddp_planned"]["out"] == {"node2": "it was lost in this run"}
    assert json.loads(found["arguments"]) == [{"expect": {"node1": 2, "node3": 2}, "gpus": 2, "partition": "batch"}]


def test_a_node_outside_the_run_is_told_of_and_gets_no_part() -> None:
    found = training({}, ["node1", "node2"])

    assert found["apart"] == {"node3": "it is outside this run"}
    assert [list(job["ranks"]) for job in found["jobs"]] == [["node1", "node2"]]


def judging(planned: dict[str, Any], job: dict[str, Any], hostvars: dict[str, Any]) -> dict[str, str]:
    args = {
        "planned": planned, "job": job, "left": "left", "simulated": ["gpu"],
        "directory": "/runs", "gpudirect": False, "release": "",
    }  # fmt: skip
    return {check["id"]: check["verdict"] for check in act(ddp_judged, args, hostvars=hostvars)["checks"]}


def test_training_is_judged_by_what_every_node_of_its_job_has_left() -> None:
    evidence = test_ddp_judge.evidence()
    planned = {"jobs": [{"ranks": {"node1": 2, "node2": 2}, "gpus": 2, "partition": "batch"}]}
    job = {"stdout": json.dumps({"jobs": [evidence["job"]]})}
    hostvars = {node: {"left": {"stdout": json.dumps(told)}} for node, told in evidence["nodes"].items()}

    assert judging(planned, job, hostvars)["ddp.result"] == "pass"
    assert judging(planned, job, {**hostvars, "node2": {}})["ddp.result"] != "pass"


def test_training_that_nobody_could_plan_is_unknown_and_no_pass() -> None:
    found = judging({}, {}, {})

    assert set(found) >= set(ddp.SUBJECT.ids)
    assert "pass" not in found.values()


GROUPS = {"slurm_controller": ["head"], "slurm_compute": ["node1", "node2"]}
ALL = {"cluster_name": "small", "node_cpus": 4, "node_real_memory": 4000}
DECLARED: dict[str, dict[str, Any]] = {
    "head": {**ALL, "ansible_host": "10.0.0.1"},
    "node1": {**ALL, "ansible_host": "10.0.0.11", "node_gres": ["gpu:A40:4"]},
    "node2": {**ALL, "ansible_host": "somewhere"},
}


def test_what_follows_from_the_inventory_is_read_from_it_alone() -> None:
    variables = {"groups": GROUPS, "hostvars": DECLARED}

    assert declared.run(["entries"], variables, hosts=["head", "node2"]) == [
        [{"address": "10.0.0.1", "names": ["head"]}]
    ]
    assert declared.run(["ranks"], variables, without_gpus="3") == [{"node1": 4, "node2": 3}]
    values, why = declared.run(["slurm", "unconfined"], variables)
    assert re.findall(r"^NodeName=(\S+)", values["slurm.conf"], re.MULTILINE) == ["node1", "node2"]
    assert why == ""


def test_an_inventory_from_which_no_configuration_follows_is_refused_with_what_to_do() -> None:
    variables = {"groups": GROUPS, "hostvars": {**DECLARED, "node2": {"cluster_name": "small"}}}

    with pytest.raises(AnsibleLookupError, match=r"node2: node_cpus and node_real_memory not declared\nFix: "):
        declared.run(["slurm"], variables)
    with pytest.raises(AnsibleLookupError, match="declared does not know nodes"):
        declared.run(["nodes"], variables)
