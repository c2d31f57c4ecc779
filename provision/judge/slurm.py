"""Are Slurm's daemons up and its nodes as declared? Pure judgement of what engine, slurmctld and slurmd answered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from provision.judge.gpus import start_cause

#: A node takes jobs when its base state is one of these and it carries none of the flags below (slurm's data parser).
HEALTHY = frozenset({"IDLE", "MIXED", "ALLOCATED"})
UNFIT = frozenset(
    {
        *(
            "DRAIN",
            "NOT_RESPONDING",
            "FAIL",
            "INVALID_REG",
            "MAINTENANCE",
            "POWERED_DOWN",
            "POWERING_DOWN",
            "POWERING_UP",
        ),
        *("REBOOT_REQUESTED", "REBOOT_ISSUED"),
    }
)
#: Flags by which somebody takes a node out on purpose. They are nothing that provisioning could mend.
WITHHELD = frozenset({"DRAIN", "MAINTENANCE"})
#: What to do about a flag or a base state, in the order in which they are looked for.
_REMEDIES = (
    (
        "INVALID_REG",
        "the node has less than slurm.conf says",
        "clusterctl preflight tells which value; correct it or the machine; then clusterctl provision slurm",
    ),
    ("NOT_RESPONDING", "slurmd does not answer slurmctld", "on the node: docker logs --tail 20 slurmd"),
    (
        "DRAIN",
        "somebody or something took the node out",
        "mend what the reason says; then scontrol update NodeName={node} State=RESUME",
    ),
    ("DOWN", "slurmctld has not heard from slurmd as it should", "on the node: docker logs --tail 20 slurmd"),
    ("REBOOT_REQUESTED", "a reboot is planned", "wait for it, or scontrol cancel_reboot {node}"),
    ("UNKNOWN", "slurmd has never registered", "on the node: docker logs --tail 20 slurmd"),
)


def parse(text: str) -> dict[str, Any]:
    """Return the JSON document that a command printed, an empty mapping where it printed something else."""
    start = text.find("{")
    try:
        # Slurm's commands may print a warning before the document.
        found = json.loads(text[start:]) if start >= 0 else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def nodes_in(text: str) -> dict[str, dict[str, Any]]:
    """Return the nodes of ``scontrol show nodes --json`` by name."""
    return {str(node["name"]): node for node in parse(text).get("nodes", ()) if "name" in node}


def words(value: Any) -> tuple[str, ...]:
    """Return a state as words: a list in newer data versions, ``IDLE+DRAIN`` in text."""
    listed = value if isinstance(value, list) else str(value or "").replace("*", "+NOT_RESPONDING").split("+")
    return tuple(str(word).upper() for word in listed if word)


def fit(node: Mapping[str, Any]) -> bool:
    """Tell whether a node takes jobs."""
    state = set(words(node.get("state")))
    return bool(state & HEALTHY) and not state & UNFIT


def settled(text: str, scope: Iterable[str]) -> bool:
    """Tell whether waiting longer is pointless: every node of the scope takes jobs, or is out for a reason.

    A node that slurmctld has not heard from yet is worth waiting for.
    """
    nodes = nodes_in(text)
    waiting = {"UNKNOWN", "NOT_RESPONDING", "DOWN", "INVALID_REG"}
    return bool(nodes) and all(
        name in nodes and (fit(nodes[name]) or not waiting & set(words(nodes[name].get("state")))) for name in scope
    )


def counts(text: str) -> dict[str, int]:
    """Return ``{"gpu:a40": 4}`` from Slurm's ``gpu:A40:4(S:0-1)``, in lower case, as Slurm compares types."""
    found: dict[str, int] = {}
    for item in re.sub(r"\([^)]*\)", "", text).split(","):
        name, _, number = item.strip().rpartition(":")
        if name and number.isdigit():
            found[name.lower()] = found.get(name.lower(), 0) + int(number)
    return found


def registered(text: str) -> dict[str, int]:
    """Return what ``slurmd -G`` found, by name and type."""
    found: dict[str, int] = {}
    for name, kind, number in re.findall(r"Gres Name=(\S+) (?:Type=(\S+) )?Count=(\d+)", text):
        key = f"{name}:{kind}" if kind and kind != "(null)" else name
        found[key.lower()] = found.get(key.lower(), 0) + int(number)
    return found


def _told(found: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{number}" for name, number in sorted(found.items())) or "none"


def _check(name: str, verdict: str, **more: Any) -> dict[str, Any]:
    if verdict == "pass":
        more.update(cause="", fix="")
    return {"id": f"slurm.{name}", "host": "", "level": "host", "verdict": verdict, **more}


def containers(inspected: str) -> dict[str, dict[str, Any]]:
    """Return what ``docker container inspect`` printed, by name; nothing where it printed something else."""
    try:
        return {str(entry["Name"]).lstrip("/"): entry for entry in json.loads(inspected or "[]")}
    except ValueError:
        return {}


def daemon_check(inspected: str, names: Sequence[str], image: str) -> dict[str, Any]:
    """Judge a machine's containers by ``docker container inspect``: all run, and from the image that was built."""
    found, wrong = containers(inspected), []
    for name in names:
        if name not in found:
            wrong.append(f"{name} does not exist")
        elif not found[name]["State"]["Running"] or found[name]["State"].get("Restarting"):
            wrong.append(f"{name} is {found[name]['State'].get('Status', 'not running')}")
        elif image and found[name]["Config"]["Image"] != image:
            wrong.append(f"{name} runs another image")
    return _check(
        "daemons",
        "fail" if wrong else "pass",
        observed="; ".join(wrong) or f"{' and '.join(names)} running",
        expected=f"{' and '.join(names)} running from the image that was built",
        source="slurm_service",
        cause="the container was stopped, keeps failing, or was left from an earlier image",
        fix=f"docker logs --tail 20 {names[0] if names else 'slurmd'}; then clusterctl provision slurm",
    )


def state_check(name: str, nodes: Mapping[str, Mapping[str, Any]], *, verifying: bool = True) -> dict[str, Any]:
    """Judge a node by the flags of its state.

    A node that is only withheld from jobs fails no run that is not ``verifying``: it is provisioned like the rest.
    """
    node = nodes.get(name)
    expected = "IDLE, MIXED or ALLOCATED, and nothing that keeps jobs away"
    if node is None:
        return _check(
            "node_state",
            "fail" if nodes else "unknown",
            observed="slurmctld does not know this node" if nodes else "slurmctld did not answer",
            expected=expected,
            source="scontrol show nodes --json",
            cause="the configuration that slurmctld runs with is not the inventory's"
            if nodes
            else "slurmctld is not running",
            fix="clusterctl provision slurm",
        )
    state, reason = words(node.get("state")), str(node.get("reason") or "")
    cause, fix = next(
        ((cause, fix.format(node=name)) for word, cause, fix in _REMEDIES if word in state),
        ("", "scontrol show node " + name),
    )
    withheld = bool(set(state) & HEALTHY) and set(state) & UNFIT <= WITHHELD
    return _check(
        "node_state",
        "pass" if fit(node) else "warn" if withheld and not verifying else "fail",
        observed="+".join(state) + (f" ({reason})" if reason else ""),
        expected=expected,
        source="scontrol show nodes --json",
        cause=f"{cause}: {reason}" if cause and reason else cause or reason,
        fix=fix,
    )


def gres_check(
    name: str, nodes: Mapping[str, Mapping[str, Any]], listed: str, declared: str, simulated: Sequence[str]
) -> dict[str, Any]:
    """Judge whether the inventory, slurmctld and slurmd mean the same devices.

    ``listed`` is what ``slurmd -G`` printed, ``declared`` the inventory's node_gres.
    """
    wanted, configured, there = counts(declared), counts(str(nodes.get(name, {}).get("gres") or "")), registered(listed)
    unseen = name not in nodes or (not there and bool(wanted))
    right = wanted == configured == there
    return _check(
        "gres",
        "pass" if right else "unknown" if unseen and name not in nodes else "fail",
        observed=f"slurmctld has {_told(configured)}, slurmd finds {_told(there)}",
        expected=_told(wanted),
        source="node_gres",
        cause=start_cause(listed) or "a device is missing or was added, or slurmd runs with an older configuration",
        fix="ls -l /dev/nvidia* on the node; correct node_gres or the machine; then clusterctl provision slurm",
        simulated=bool(wanted) and any(kind.split(":")[0] in simulated for kind in wanted),
    )


def version_check(name: str, nodes: Mapping[str, Mapping[str, Any]], declared: str) -> dict[str, Any]:
    """Judge whether a node runs the release of Slurm that the configuration is written for."""
    version = str(nodes.get(name, {}).get("version") or "")
    return _check(
        "version",
        "unknown" if not version else "pass" if version.startswith(f"{declared}.") else "fail",
        observed=version or "nothing could be observed",
        expected=f"{declared}.x",
        source="slurm_version",
        cause="the node runs another image than slurm_version asks for",
        fix="clusterctl provision slurm",
    )


def memlock_check(inspected: str) -> dict[str, Any]:
    """Report whether jobs get the locked memory that RDMA needs, which a machine inside a container cannot give.

    ``inspected`` is ``docker container inspect`` of slurmd: its limits are left out where the machine lacks the right.
    """
    host: Mapping[str, Any] = next((entry.get("HostConfig", {}) for entry in containers(inspected).values()), {})
    allowed = any(str(limit.get("Name")) == "memlock" for limit in host.get("Ulimits") or ())
    return _check(
        "memlock",
        "pass" if allowed else "warn",
        observed="as configured" if allowed else "the machine's own limit",
        expected="as configured",
        source="slurm_service_memlock",
        cause="the machine lacks CAP_SYS_RESOURCE, as one that is itself a container does",
        fix="none is needed for simulated machines; on a real one, do not run it in a container",
    )


def status(nodes: str, jobs: str) -> dict[str, Any]:
    """Return nodes and jobs as ``clusterctl status`` shows them, from ``--json`` of scontrol and squeue."""
    return {
        "nodes": [
            {
                "name": name,
                "state": list(words(node.get("state"))),
                "cpus": int(node.get("cpus") or 0),
                "gres": str(node.get("gres") or ""),
                "gres_used": str(node.get("gres_used") or ""),
                "reason": str(node.get("reason") or ""),
            }
            for name, node in nodes_in(nodes).items()
        ],
        "jobs": [
            {
                "id": int(job.get("job_id") or 0),
                "name": str(job.get("name") or ""),
                "user": str(job.get("user_name") or ""),
                "state": list(words(job.get("job_state"))),
                "nodes": str(job.get("nodes") or ""),
                "reason": str(job.get("state_reason") or ""),
            }
            for job in parse(jobs).get("jobs", ())
        ],
    }
