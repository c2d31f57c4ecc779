"""Are Slurm's nodes and partitions as declared, and do they take jobs? Pure judgement of what the daemons answered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from provision.judge.gpus import start_cause
from provision.judge.slurm_answers import HEALTHY, Node, nodes_in, partitions_in, places
from provision.judge.slurm_facts import Facts, Wants, answered
from provision.judge.slurm_reasons import Reason, reason_of
from provision.model.checks import Check, Detail, Subject, Verdict
from provision.model.gres import counts, parse, printed
from provision.model.text import sections

SUBJECT = Subject("slurm", ("node_state", "gres", "partitions"), fix="clusterctl provision slurm")

#: Flags by which somebody takes a node out on purpose. They are nothing that provisioning could fix.
WITHHELD = frozenset({"DRAIN", "MAINTENANCE", "RESERVED"})
#: States in which slurmctld and slurmd do not hear each other.
_UNHEARD = frozenset({"NOT_RESPONDING", "DOWN", "UNKNOWN"})
#: States that have a reason.
_OUT = frozenset({"DOWN", "DRAIN", "INVALID_REG"})
#: What to do about a flag or a base state of which no reason says more, in the order in which they are looked for.
_DEAF = "see munge's checks; else, on the node: docker exec slurmd scontrol ping; open port 6817 of the controller"
_REMEDIES = (
    (
        "INVALID_REG",
        "slurmctld does not take the node as it is",
        "clusterctl preflight; on the controller: docker logs --tail 50 slurmctld",
    ),
    ("NOT_RESPONDING", "slurmd does not answer slurmctld", "on the node: docker logs --tail 20 slurmd"),
    (
        "DRAIN",
        "somebody or something took the node out",
        "fix what the reason says; then scontrol update NodeName={node} State=RESUME",
    ),
    ("DOWN", "slurmctld has not heard from slurmd as it should", "on the node: docker logs --tail 20 slurmd"),
    ("RESERVED", "a reservation keeps the node for others", "scontrol show reservation"),
    ("REBOOT_REQUESTED", "a reboot is planned", "wait for it, or scontrol cancel_reboot {node}"),
    ("UNKNOWN", "slurmd has never registered", "on the node: docker logs --tail 20 slurmd"),
)


def checks(facts: Facts, wants: Wants) -> list[Check]:
    """Return the checks of one machine: of its node where it has slurmd, of all partitions where it has slurmctld."""
    nodes = nodes_in(facts.controller.get("nodes", ""))
    partitions = (
        _partitions(facts, wants) if wants.controller else SUBJECT.skip("partitions", "slurmctld runs elsewhere")
    )
    if not wants.compute:
        why = "no jobs run on this machine"
        return [SUBJECT.skip("node_state", why), SUBJECT.skip("gres", why), partitions]
    return [_state(facts, wants, nodes), _gres(facts, wants, nodes.get(wants.host)), partitions]


def _state(facts: Facts, wants: Wants, nodes: Mapping[str, Node]) -> Check:
    node = nodes.get(wants.host)
    if node is None and not nodes:
        return SUBJECT.unknown("node_state", facts.silent, cause="slurmctld did not answer, or it is not reached")
    expected, source = "IDLE, MIXED or ALLOCATED, and nothing that keeps jobs away", "scontrol show nodes --json"
    if node is None:
        return SUBJECT.check(
            "node_state",
            Verdict.FAIL,
            "slurmctld does not know this node",
            expected,
            source=source,
            cause="the configuration that slurmctld runs with is not the inventory's",
        )
    if not node.known:
        return SUBJECT.unknown("node_state", f"slurmctld says {node.told or 'nothing'}", cause="not a state of Slurm's")
    if facts.munge_silent and set(node.state) & _UNHEARD and not node.hindered - _UNHEARD:
        # Slurm's daemons hear each other by munge's credentials only.
        return SUBJECT.unknown("node_state", node.told, cause=facts.munge_silent, fix="systemctl status munge")
    known = reason_of(node.reason)
    cause, fix = _reason(facts, wants, node, known)
    # Both answer on their own machines and not each other: which of them is wrong is for others to say.
    apart = fix == _DEAF and not node.hindered - _UNHEARD
    return SUBJECT.check(
        "node_state",
        _verdict(node, wants, apart=apart),
        node.told,
        expected,
        source=source,
        cause=f"{cause}: {node.reason}" if cause and node.reason else cause or node.reason,
        fix=fix,
        details=[Detail(known.code, node.name)] if known else (),
    )


def _verdict(node: Node, wants: Wants, *, apart: bool) -> Verdict:
    """Judge a node that Slurm knows; ``apart``: its daemons run, and do not hear each other."""
    if node.open_to(wants.reservation):
        return Verdict.PASS
    withheld = (bool(set(node.state) & HEALTHY) or node.set_down) and node.hindered <= WITHHELD
    # A reservation is the site's own arrangement, and over by itself.
    if withheld and (node.hindered == {"RESERVED"} or not wants.verifying):
        return Verdict.WARN
    return Verdict.UNKNOWN if apart else Verdict.FAIL


def _reason(facts: Facts, wants: Wants, node: Node, known: Reason | None) -> tuple[str, str]:
    """Return why a node is as it is, and what to do: what its own machine and the way to it show comes first."""
    state = set(node.state)
    if node.set_down:
        return (
            f"{node.reason_by} has set the node down",
            f"fix what the reason says; then scontrol update NodeName={node.name} State=RESUME",
        )
    if state & _UNHEARD:
        if silent := facts.slurmd_silent:
            return silent, "on the node: docker ps --all; docker logs --tail 20 slurmd; docker restart slurmd"
        if way := _way(facts, wants, node):
            return way
    if known and state & _OUT:
        return known.cause, known.fix.replace("{node}", node.name)
    for word, cause, fix in _REMEDIES:
        if word in state:
            return cause, fix.replace("{node}", node.name)
    return "", f"scontrol show node {node.name}"


def unheard(controller: str, scope: Sequence[str]) -> list[str]:
    """Return name and port of each node of the scope that slurmctld does not hear, 64 at the most, flat."""
    nodes = nodes_in(sections(controller).get("nodes", ""))
    found = [nodes[name] for name in scope if name in nodes and set(nodes[name].state) & _UNHEARD]
    return places(found[:64])


def _way(facts: Facts, wants: Wants, node: Node) -> tuple[str, str] | None:
    """Return what is wrong on the way between slurmctld and a slurmd that answers on its own machine."""
    found = re.search(
        rf"(?m)^{re.escape(node.name)} ([0-9a-fA-F.:,]{{1,400}}|-) (open|refused|silent|unreachable)$",
        facts.controller.get("reach", ""),
    )
    port = f"port {node.port or 6818}"
    if found:
        addresses, result = found[1].split(","), found[2]
        if found[1] == "-":
            return (
                f"the controller finds no address for {node.name}",
                f"on the controller: getent ahosts {node.name}; then clusterctl provision base",
            )
        if re.fullmatch(r"[0-9.]+|[0-9a-fA-F:]+:[0-9a-fA-F:.]*", wants.address) and addresses[0] != wants.address:
            return (
                f"on the controller {node.name} leads to {addresses[0]}, the inventory says {wants.address}",
                f"on the controller: getent ahosts {node.name}, remove the other line from /etc/hosts; "
                "then clusterctl provision base",
            )
        if result != "open":
            return (
                f"slurmd answers on its own machine, and the controller cannot connect to {addresses[0]} {port} "
                f"({result}): a firewall or a route",
                f"on the controller: nc -vz {addresses[0]} {node.port or 6818}; open the way in the node's firewall",
            )
    return (facts.slurmctld_deaf, _DEAF) if facts.slurmctld_deaf else None


def registered(text: str) -> dict[str, int]:
    """Return what ``slurmd -G`` found, by name and type.

    Raises:
        ValueError: it printed what is no resource.
    """
    found = re.findall(r"Gres Name=(\S+) (?:Type=(\S+) )?Count=(\d+)", text)
    return counts(
        parse(
            [
                f"{name}:{kind}:{count}" if kind not in ("", "(null)") else f"{name}:{count}"
                for name, kind, count in found
            ]
        )
    )


def _shown(found: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{count}" for name, count in sorted(found.items())) or "none"


def _gres(facts: Facts, wants: Wants, node: Node | None) -> Check:
    """Judge whether the inventory, slurmctld and slurmd mean the same devices."""
    try:
        wanted = counts(parse(wants.gres or ()))
    except ValueError as error:
        return SUBJECT.unknown(
            "gres", f"node_gres cannot be read: {error}", cause="the inventory", fix="correct node_gres"
        )
    said, code = answered(facts.machine.get("devices", ""))
    early = start_cause(said)
    if not early and (silent := facts.slurmd_silent or ("slurmd did not list its devices" if code != 0 else "")):
        # What a stopped slurmd does not list says nothing about the hardware.
        return SUBJECT.unknown("gres", silent, cause="slurmd does not answer", fix="docker logs --tail 20 slurmd")
    try:
        there = registered(said)
    except ValueError as error:
        return SUBJECT.unknown("gres", f"slurmd lists an invalid resource: {error}", cause="slurmd's own answer")
    try:
        configured = None if node is None else counts(printed(node.gres))
    except ValueError as error:
        return SUBJECT.unknown("gres", f"slurmctld lists an invalid resource: {error}", cause="slurmctld's answer")
    right = there == wanted and (configured is None or configured == wanted)
    missing = facts.silent or "slurmctld does not know this node"
    return SUBJECT.check(
        "gres",
        Verdict.FAIL if not right else Verdict.UNKNOWN if configured is None else Verdict.PASS,
        _observed(configured, there, missing),
        _shown(wanted),
        source="node_gres",
        cause=early
        or (missing if right else "a device is missing or was added, or slurmd runs with an older configuration"),
        fix="ls -l /dev/nvidia* on the node; correct node_gres or the machine; then clusterctl provision slurm",
        simulated=bool(wanted) and any(kind.split(":")[0] in wants.simulated for kind in wanted),
    )


def _observed(configured: Mapping[str, int] | None, there: Mapping[str, int], missing: str) -> str:
    return f"{missing if configured is None else f'slurmctld has {_shown(configured)}'}, slurmd finds {_shown(there)}"


def _partitions(facts: Facts, wants: Wants) -> Check:
    found = partitions_in(facts.controller.get("partitions", ""))
    if not found:
        return SUBJECT.unknown("partitions", facts.silent or "slurmctld listed no partitions")
    wrong = [f"{name} does not exist" for name in wants.partitions if name not in found]
    closed = []
    for name, partition in found.items():
        expected = wants.partitions.get(name, "UP")
        if partition.state != (expected,):
            closed.append(f"{name} is {'+'.join(partition.state) or 'in no known state'}, declared {expected}")
    return SUBJECT.check(
        "partitions",
        Verdict.FAIL if wrong or (closed and wants.verifying) else Verdict.WARN if closed else Verdict.PASS,
        "; ".join((wrong + closed)[:20]) or f"{len(found)} as declared",
        "every partition in the declared state, UP where none is declared",
        source="slurm_partitions; scontrol show partitions --json",
        cause="somebody changed the partition's state, and jobs do not start in it"
        if not wrong
        else "slurmctld runs with another configuration",
        fix="; ".join(f"scontrol update PartitionName={text.split()[0]} State=UP" for text in closed[:5])
        if closed and not wrong
        else None,
    )
