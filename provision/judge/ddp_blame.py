"""Who broke the DDP job, from what its ranks left behind: the culprit before its victims. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from provision.judge.ddp_evidence import Accused, Record
from provision.judge.ddp_logs import without_advice
from provision.model.text import brief


def accuse(rank: int | None, node: str, detail: str) -> Accused:
    """Return one accusation; no rank means the machine as a whole."""
    return Accused(rank=rank, node=node, detail=detail)


def named(accused: Accused) -> str:
    """Return one accusation as text: who, which parameter, and what speaks against it."""
    node = accused.node or "an unknown node"
    who = f"node {node}" if accused.rank is None else f"rank {accused.rank} on {node}"
    parameter = f", parameter {accused.parameter}" if accused.parameter else ""
    return f"{who}{parameter}: {accused.detail}"


def names(guilty: Sequence[Accused]) -> str:
    """Return the first accusations as text, and how many more there are."""
    return brief([named(accused) for accused in guilty])


def host_of(guilty: Sequence[Accused], known: Mapping[str, int]) -> str:
    """Return the machine that all accusations are about; none where they are about several, or one nobody declared."""
    hosts = {accused.node for accused in guilty}
    host = hosts.pop() if len(hosts) == 1 else ""
    return host if host in known else ""


def _missing(records: Sequence[Record], expected: Mapping[str, int]) -> list[Accused]:
    """Return nodes on which fewer ranks than expected left a record, and ranks that several nodes claim."""
    started = Counter(record.node for record in records)
    claimed: dict[int, set[str]] = defaultdict(set)
    for record in records:
        claimed[record.rank].add(record.node)
    found = [
        accuse(None, node, f"{started[node]} of {count} ranks left a record: never started, or the machine is gone")
        for node, count in sorted(expected.items())
        if started[node] < count
    ]
    return found + [
        accuse(rank, node, "is claimed by several nodes: they ran separate jobs")
        for rank, nodes in sorted(claimed.items())
        if len(nodes) > 1
        for node in sorted(nodes)
    ]


def _out_of_step(unfinished: Sequence[Record]) -> list[Accused]:
    """Return the ranks that waited in another conversation than the rest; all of them where there is no majority."""
    subjects = Counter(record.waiting for record in unfinished)
    if len(subjects) < 2:
        return []
    usual, count = subjects.most_common(1)[0]
    if count * 2 > len(unfinished):
        odd = [record for record in unfinished if record.waiting != usual]
        return [accuse(r.rank, r.node, f"was in '{r.waiting}', the others in '{usual}'") for r in odd]
    return [accuse(r.rank, r.node, f"was in '{r.waiting}', out of step with the others") for r in unfinished]


def who_broke(records: Sequence[Record], expected: Mapping[str, int]) -> list[Accused]:
    """Return who made the others stop, strongest evidence first; empty where all are victims alike.

    A rank whose peer dies reports a broken connection or is ended by torchrun: a victim. The culprit gives an error of
    its own, or left nothing, or stopped without a word, or was not where the others waited for it.
    """
    unfinished = [record for record in records if record.state != "done"]
    own = [record for record in unfinished if record.error is not None and record.error.kind == "own"]
    if own:
        return [
            accuse(r.rank, r.node, f"failed in step {r.step}: {without_advice(r.error.text) if r.error else ''}")
            for r in own
        ]
    if found := _missing(records, expected):
        return found
    silent = [record for record in unfinished if record.state == "running"]
    if silent and len(silent) < len(records):
        busy = [record for record in silent if not record.waiting]
        return [
            accuse(r.rank, r.node, f"died without a message in step {r.step} (killed, or its machine failed)")
            for r in busy or silent
        ]
    absent = [record for record in unfinished if not record.waiting]
    if absent and len(absent) < len(records):
        return [
            accuse(r.rank, r.node, f"was busy elsewhere in step {r.step} while the others waited for it")
            for r in absent
        ]
    return _out_of_step(unfinished)


def all_alike(records: Sequence[Record]) -> str:
    """Return what is known where nobody can be named: where the ranks were, and no more than that."""
    if all(record.state == "running" for record in records):
        return "every rank ended without a message: the first to fail is unknown"
    where = {record.waiting for record in records if record.waiting}
    place = f"every rank was in '{where.pop()}'" if len(where) == 1 else "every rank stopped"
    lost = any(record.error is not None and record.error.kind == "communication" for record in records)
    return f"{place}{' and lost the others' if lost else ''}: the first to fail is unknown"
