"""What machines say about a DDP job is input: it can be wrong in every way, and accuses nobody but its own machine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_ddp_judge import EXPECTED, PLAN, broken, by_id, evidence, read, record, step

from provision.judge import ddp
from provision.judge.ddp_evidence import Wants, documents, evidence_from


def spoiled(**changes: Any) -> dict[str, Any]:
    """A healthy run in which node2 answers otherwise."""
    found = evidence()
    found["nodes"]["node2"] |= changes
    return found


def checks(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return by_id([check.as_dict() for check in ddp.checks(PLAN, [read(found)])])


FORMATS = "{rank.__class__.__mro__} {0:>9999999} %(x)s {{ 7 * 7 }}"

RECORDS: dict[str, Any] = {
    "no mapping": 1,
    "a rank that is a word": record(3) | {"rank": "x"},
    "a rank that is true": record(3) | {"rank": True},
    "a huge rank": record(3) | {"rank": 10**400},
    "a negative rank": record(3) | {"rank": -1},
    "a rank that is no number": record(3) | {"rank": float("nan")},
    "an unknown state": record(3, state="happy"),
    "an unknown verdict": record(3, outcomes={"parameters": "excellent"}),
    "outcomes in a list": record(3, outcomes=[["parameters", "pass"]]),
    "control characters": record(3, node="node2\x1b[2J"),
    "a line feed in a step": record(3, step="a\nverdict: pass"),
    "a megabyte of a word": record(3, waiting="x", step="s" * 1_000_000),
    "nested lists": [[[[[]]]]],
    "another machine's name": record(3, node="node1"),
}


@pytest.mark.parametrize("bad", RECORDS.values(), ids=RECORDS.keys())
def test_a_record_that_is_none_is_its_own_nodes_fault_and_no_other_s(bad: Any) -> None:
    found = checks(spoiled(records=[record(2), bad]))

    assert found["result"]["verdict"] == "fail"
    assert found["result"]["host"] == "node2"
    assert "node node2: its evidence is broken" in found["result"]["cause"]
    assert "node node1:" not in found["result"]["cause"]
    assert {check["verdict"] for name, check in found.items() if name in ddp.STEPS} == {"pass"}


@pytest.mark.parametrize(
    "answer", ["Traceback", "[]", "[" * 100_000, '"x"', '{"records": ' + "9" * 9_999 + "}", "null"]
)
def test_an_answer_that_is_no_document_is_its_own_nodes_fault(answer: str) -> None:
    found = evidence()
    left = {"node1": json.dumps(found["nodes"]["node1"]), "node2": answer}

    judged = evidence_from(found["job"], "", left, Wants(EXPECTED, 2, ["gpu"]), {}, "/runs")
    whole = by_id([check.as_dict() for check in ddp.checks(PLAN, [judged])])["result"]

    assert (whole["verdict"], whole["host"]) == ("fail", "node2")


RESULTS: dict[str, Any] = {
    "a list": [1],
    "an unknown verdict": {"steps": {"identity": step("excellent")}},
    "steps in a list": {"steps": [1]},
    "a step that is a word": {"steps": {"identity": "pass"}},
    "a world without end": {"world": 10**30},
    "guilty is a word": {"steps": {"identity": step("fail", guilty="node1")}},
    "simulated is a mapping": {"simulated": {"gpu": 1}},
    "a backend with an escape": {"backend": "\x1b]0;x\x07"},
}


@pytest.mark.parametrize("change", RESULTS.values(), ids=RESULTS.keys())
def test_a_result_that_is_none_is_the_fault_of_the_node_that_wrote_it(change: Any) -> None:
    found = evidence()
    told = found["nodes"]["node1"]
    told["result"] = {**told["result"], **change} if isinstance(change, dict) else change

    judged = checks(found)

    assert judged["result"]["verdict"] == "fail"
    assert judged["result"]["host"] == "node1"
    assert "node node1: its evidence is broken" in judged["result"]["cause"]
    assert "node2" not in judged["result"]["cause"]
    assert judged["identity"]["verdict"] == "unknown"


def test_a_result_counts_only_from_rank_0s_node() -> None:
    found = evidence()
    forged = {**found["nodes"]["node1"]["result"], "steps": {name: step() for name in ddp.STEPS}}
    found["nodes"]["node1"]["result"] = None
    found["nodes"]["node2"]["result"] = forged

    judged = checks(found)

    assert (judged["result"]["verdict"], judged["result"]["host"]) == ("fail", "node2")
    assert judged["identity"]["verdict"] == "unknown"


def test_a_record_of_another_run_is_none_of_this_one() -> None:
    judged = checks(spoiled(records=[record(2), record(3, run_id="r0")]))

    assert judged["result"]["verdict"] == "fail"
    assert "1 of 2 ranks left a record" in judged["result"]["cause"]


def test_a_result_of_another_run_is_none_of_this_one() -> None:
    found = evidence()
    found["nodes"]["node1"]["result"]["run_id"] = "r0"

    judged = checks(found)

    assert judged["result"]["verdict"] == "fail"
    assert judged["identity"]["verdict"] == "unknown"


def test_a_second_result_changes_nothing_but_accuses_its_author() -> None:
    found = evidence()
    result = found["nodes"]["node1"]["result"]
    guilty = [{"rank": 0, "node": "node1", "parameter": "", "detail": "differs"}]
    found["nodes"]["node2"]["result"] = {
        **result,
        "steps": {**result["steps"], "identity": step("fail", guilty=guilty)},
    }

    judged = checks(found)

    assert judged["identity"]["verdict"] == "pass"
    assert (judged["result"]["verdict"], judged["result"]["host"]) == ("fail", "node2")


def test_a_node_that_also_claims_rank_0_is_not_believed_and_neither_is_the_other() -> None:
    judged = checks(spoiled(records=[record(0, node="node2"), record(2), record(3)]))

    assert judged["identity"]["verdict"] == "unknown"
    assert judged["result"]["verdict"] == "fail"
    assert judged["result"]["host"] in ("", "node1")  # both are named, whoever of them lies
    assert "rank 0 on node1" in judged["result"]["cause"]
    assert "rank 0 on node2" in judged["result"]["cause"]


def test_a_node_cannot_accuse_another_of_what_that_ones_ranks_did_not_see() -> None:
    found = evidence()
    for one in found["nodes"]["node2"]["records"]:
        one["outcomes"] = {"parameters": "pass"}
    guilty = [{"rank": 3, "node": "node2", "parameter": "x", "detail": "differs"}]
    found["nodes"]["node1"]["result"]["steps"]["parameters"] = step("fail", guilty=guilty, digest="x")

    judged = checks(found)["parameters"]

    assert judged["verdict"] == "fail"
    assert judged["host"] == ""
    assert "node1 says that this step ended as fail, the other nodes' ranks recorded pass" in judged["cause"]


def test_an_accusation_of_a_machine_that_nobody_declared_names_no_host() -> None:
    found = evidence()
    guilty = [{"rank": 3, "node": "head", "parameter": "", "detail": "curl http://x | sh"}]
    found["nodes"]["node1"]["result"]["steps"]["parameters"] = step("fail", guilty=guilty, digest="x")

    assert checks(found)["parameters"]["host"] == ""


def test_a_rank_that_recorded_a_failure_is_not_overruled_by_the_result() -> None:
    found = evidence()
    found["nodes"]["node2"]["records"][1]["outcomes"] = {"gradients": "fail"}

    whole = checks(found)["result"]

    assert (whole["verdict"], whole["host"]) == ("fail", "node2")
    assert "recorded that gradients failed, the result says pass" in whole["cause"]


@pytest.mark.parametrize("text", [FORMATS, "a\nverdict: pass", "\x1b[2Jx", "x" * 100_000, "\u202egnp"])
def test_texts_of_machines_are_never_formatted_obeyed_or_long(text: str) -> None:
    error = {"kind": "own", "text": text}
    lost = [broken(0), broken(1), broken(2, waiting=text[:200].replace("\n", " "), error=error), broken(3)]
    found = evidence(lost, exit_code=1, state="FAILED")
    found["nodes"]["node2"]["node_log"] = [text, text]
    found["nodes"]["node2"]["logs"] = {"2": [text], "x" * 99: ["y"], "9" * 99: [text]}

    whole = checks(found)["result"]

    assert whole["host"] == "node2"
    for value in (whole["cause"], whole["observed"], whole["fix"]):
        assert value.isprintable() or "\ufffd" in value
        assert "\n" not in value
        assert len(value) < 5_000
    if text is FORMATS:
        assert FORMATS in whole["cause"]


@pytest.mark.parametrize(
    "told",
    [
        {"id": "7; rm -rf /"},
        {"run_id": "../../etc"},
        {"exit_code": "0"},
        {"exit_code": 10**30},
        {"out": {"node2": 1}},
        {"state": ["COMPLETED"]},
    ],
)
def test_a_controller_that_answers_nonsense_leaves_the_proof_open(told: dict[str, Any]) -> None:
    found = evidence()
    found["job"] |= told

    judged = checks(found)

    assert judged["result"]["verdict"] == "unknown"
    assert judged["result"]["host"] == ""


@pytest.mark.parametrize("text", ["", "x", "[]", '{"jobs": 1}', '{"jobs": {"a": 1}}', "[" * 100_000])
def test_a_submission_that_printed_no_documents_gave_none(text: str) -> None:
    assert documents(text) == []


@pytest.mark.parametrize(
    "rdma", [1, "x", [], {"adapters": 1}, {"adapters": [1], "acs": 3}, {"adapters": [{}], "acs": {}}]
)
def test_what_a_node_says_of_its_adapters_never_stops_the_judge(rdma: Any) -> None:
    found = evidence() | {"simulated": [], "rdma": {"node1": rdma, "node2": rdma}}

    assert checks(found)["gpudirect.traffic"]["verdict"] in ("unknown", "skip")
