"""Answers of Slurm and the engine for tests, as the role's scripts print them; the shapes are 24.11's."""

from __future__ import annotations

import json
from typing import Any

from provision.judge.slurm_facts import Facts, Wants
from provision.model.checks import Check

SUM = "a" * 40
IMAGE = "r/slurm@sha256:1"
DEVICES = "slurmd-node1: Gres Name=gpu Type=A40 Count=4 Index=0 ID=7696487 File=/dev/nvidia[0-3] Flags=HAS_FILE"
SLURMD = "Slurmd PID               = 724\nVersion                  = 24.11.5"


def node(name: str = "node1", **changes: Any) -> dict[str, Any]:
    """Return a node as ``scontrol show nodes --json`` describes it, shortened."""
    return {
        "name": name, "state": ["IDLE"], "reason": "", "gres": "gpu:A40:4(S:0-1)", "gres_used": "gpu:A40:0(IDX:N/A)",
        "version": "24.11.5", "address": name, "port": 6818, "partitions": ["batch"], "reservation": "",
        "cpus": 8, "alloc_cpus": 0, "real_memory": 8000, "alloc_memory": 0,
    } | changes  # fmt: skip


def partition(
    name: str = "batch", state: str = "UP", groups: str = "", accounts: str = "", oversubscribe: int = 1, **rules: str
) -> dict[str, Any]:
    """Return a partition as ``scontrol show partitions --json`` describes it, shortened."""
    return {
        "name": name,
        "groups": {"allowed": groups},
        "accounts": {"allowed": accounts, "deny": rules.get("no_accounts", "")},
        "qos": {"allowed": rules.get("qos", ""), "deny": rules.get("no_qos", ""), "assigned": ""},
        "nodes": {"allowed_allocation": rules.get("hosts", "")},
        "partition": {"state": [state]},
        "maximums": {"oversubscribe": {"jobs": oversubscribe, "flags": []}},
    }


def container(name: str = "slurmd", **changes: Any) -> dict[str, Any]:
    """Return a container as ``docker container inspect`` describes it, shortened."""
    state = {"Status": "running", "Running": True, "Paused": False, "Restarting": False, "Dead": False}
    state |= {"StartedAt": "2026-11-22T04:52:34.952838705Z"} | changes.pop("State", {})
    limits = [{"Name": "memlock", "Hard": -1, "Soft": -1}, {"Name": "nofile", "Hard": 524288, "Soft": 524288}]
    return {
        "Name": f"/{name}", "State": state, "RestartCount": 0, "Config": {"Image": IMAGE},
        "HostConfig": {"Ulimits": limits},
    } | changes  # fmt: skip


def coded(text: str, code: int = 0) -> str:
    """Return what a command printed and its exit code, as the scripts do."""
    return f"{text}\ncode {code}\n"


def joined(parts: dict[str, str]) -> str:
    """Return sections as one text."""
    return "".join(f"== {name}\n{text}\n" for name, text in parts.items())


def machine(*containers: dict[str, Any], **changes: str) -> str:
    """Return what a healthy compute node's script prints."""
    parts = {
        "now": "2026-11-22T05:52:34",
        "containers": json.dumps(list(containers) or [container()]),
        "engine": "",
        "slurmd": coded(SLURMD),
        "ping": coded("Slurmctld(primary) at head is UP"),
        "devices": coded(DEVICES),
        "files": f"{SUM}  gres.conf\n{SUM}  slurm.conf",
    }
    return joined(parts | changes)


def controller(nodes: list[Any] | None = None, partitions: list[Any] | None = None, **changes: str) -> str:
    """Return what a healthy controller's script prints."""
    parts = {
        "nodes": coded(json.dumps({"nodes": [node()] if nodes is None else nodes})),
        "partitions": coded(json.dumps({"partitions": [partition()] if partitions is None else partitions})),
        "config": coded("SLURM_VERSION           = 24.11.5\nHASH_VAL                = Match"),
        "files": f"{SUM}  gres.conf\n{SUM}  slurm.conf",
    }
    return joined(parts | changes)


def facts(own: str | None = None, slurmctld: str | None = None, problem: str = "") -> Facts:
    """Return the facts of one machine; what is not given is healthy."""
    return Facts.of(machine() if own is None else own, controller() if slurmctld is None else slurmctld, problem)


def wants(**changes: Any) -> Wants:
    """Return what is wanted of node1, a compute node with four GPUs."""
    settings: dict[str, Any] = {
        "host": "node1", "daemons": ("slurmd",), "image": IMAGE, "version": "24.11", "gres": "gpu:A40:4",
        "address": "10.0.0.11", "partitions": {"batch": "UP"}, "directories": ("/home",), "home": "shared",
    }  # fmt: skip
    return Wants(**(settings | changes))


def by_name(checks: list[Check]) -> dict[str, Check]:
    """Return checks by the last word of their ids."""
    return {check.id.partition(".")[2]: check for check in checks}


def verdicts(checks: list[Check]) -> dict[str, str]:
    """Return the verdicts by the last word of the checks' ids."""
    return {name: str(check.verdict) for name, check in by_name(checks).items()}
