"""Made-up records of runs for the report: as many machines as wanted, with what a training job has measured."""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from provision.hostlist import fold
from provision.report.record import Record

RECORDED = Path(__file__).parent / "fixtures/verdict/verify.jsonl"


def check(name: str, host: str = "node1", verdict: str = "pass", **more: Any) -> dict[str, Any]:
    texts = dict.fromkeys(("observed", "expected", "source", "cause", "fix"), "")
    return {"id": name, "host": host, "verdict": verdict, "level": "host", **texts, "follows": [], **more}


def lab_checks() -> list[dict[str, Any]]:
    """The checks of a real verify of the lab: head, node1 and node2."""
    return [dict(one) for one in _recorded()]


@cache
def _recorded() -> tuple[dict[str, Any], ...]:
    events = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    found = []
    for event in events:
        for one in ((event.get("event_data") or {}).get("res") or {}).get("cluster_checks") or ():
            host = one.get("host") or event["event_data"].get("host", "")
            found.append(check(one["id"]) | one | {"host": host})
    return tuple(found)


def training(nodes: list[str], each: int, slow: str = "") -> dict[str, Any]:
    """What a healthy job measured; the ranks of the node ``slow`` take longer for their own part."""
    curve = [4.36 * math.exp(-step / 9) + 0.08 for step in range(30)]
    ranks = [
        {"rank": rank, "node": node, "p50": 0.0124, "p95": 0.0151, "own": 0.0081 if node == slow else 0.0047}
        for rank, node in enumerate(node for node in nodes for _ in range(each))
    ]
    for one in ranks:  # no two ranks are quite alike
        one["p95"] += 0.0003 * (one["rank"] % 7)
        one["own"] += 0.0001 * (one["rank"] % 5)
    return {
        "job": "7",
        "backend": "gloo",
        "device": "cpu",
        "nodes": [{"name": node, "ranks": each, "adapters": 2} for node in nodes],
        "losses": [round(loss + 1e-7, 6) for loss in curve],
        "reference": [round(loss, 6) for loss in curve],
        "reference_difference": 2.2e-7,
        "gradient_difference": 3.1e-8,
        "gradient_parameter": "blocks.0.attention.weight",
        "samples_per_s": 1290.0,
        "tokens_per_s": 41280.0,
        "ranks": ranks,
    }


def record(checks: list[dict[str, Any]], verdict: str = "pass", **more: Any) -> Record:
    """A run that ended, on the nodes of these checks."""
    nodes = sorted({one["host"] for one in checks if one["host"].startswith(("node", "gpu"))})
    document = {
        "schema": "clusterctl/verify/1",
        "command": "verify",
        "exit_code": 0 if verdict == "pass" else 8,
        "verdict": verdict,
        "why": [],
        "limited": [],
        "simulated": ["gpu"],
        "checks": checks,
        "cluster": {
            "name": "lab",
            "controller": "head",
            "database": "head",
            "login": "login1",
            "kinds": [{"nodes": fold(nodes), "cpus": 32, "memory": 257000, "gres": ["gpu:a40:4"]}],
            "partitions": [{"name": "batch", "nodes": fold(nodes)}],
        },
        "training": [training(nodes, 4)] if nodes else [],
    }
    facts = {
        "id": "20261127-224353-1f0a22",
        "command": "verify",
        "options": {"inventory": "/srv/lab/inventory.ini", "limit": None},
        "started": "2026-11-27T22:43:53+00:00",
        "ended": "2026-11-27T22:48:05+00:00",
        "outcome": "done",
        "exit_code": document["exit_code"],
        "user": "ada",
        "host": "desk",
        "versions": {"clusterctl": version("clusterctl"), "ansible-core": "2.19.4"},
    }
    return Record(facts, document | more)


def many(machines: int) -> Record:
    """A cluster of this many nodes, each with the checks that node1 of the lab has; three of them are not well."""
    own = [one for one in lab_checks() if one["host"] == "node1"]
    nodes = [f"gpu{number:03}" for number in range(1, machines + 1)]
    checks = [one for one in lab_checks() if one["host"] == "head" and not one["id"].startswith("ddp.c")]
    checks += [{**one, "host": node, "simulated": False} for node in nodes for one in own]
    checks += [
        check("rdma.counters", nodes[6], "warn", observed="port mlx5_3:1: 214 symbol errors during the transfers"),
        check("nvidia_driver.loaded", nodes[11], "unknown", observed="no answer in 20 s", fix="ssh gpu012 nvidia-smi"),
        check(
            "ddp.collectives",
            nodes[6],
            "fail",
            observed="all_reduce of 1048576 float32: 3 wrong numbers, on rank 51",
            expected="the closed form, exactly",
            cause="communication delivers wrong numbers: memory, NIC or driver of the named rank's machine",
            fix="drain the node, run its GPU memory and link diagnostics, then verify again without it",
        ),
        check("ddp.gradients", nodes[6], "unknown", follows=[f"ddp.collectives@{nodes[6]}"]),
    ]
    made = record(checks, "fail", simulated=[])
    made.document["training"] = [training(nodes, 4, slow=nodes[6])]
    return made
