"""Who broke the DDP job, from what its ranks left behind: the culprit before its victims. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: What logs say, why, and the way out. Each pattern has a fixture in the tests.
LOG_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"connectFullMesh failed|Unable to resolve hostname to a \(local\) address|resolves to 127\.",
        "a node's own name resolves to the loopback address, so others cannot connect to it",
        "remove the 127.0.1.1 line from /etc/hosts: clusterctl provision INVENTORY base",
    ),
    (
        r"EADDRINUSE|[Aa]ddress already in use",
        "the rendezvous port is taken by another program on the first node",
        "find it with 'ss -ltnp' on the first node of the job, end it, verify again",
    ),
    (
        r"client socket has timed out|connection to the C10d store has failed|DistNetworkError",
        "a node could not reach the rendezvous on the first node: a firewall, or the first node's container never ran",
        "read node.log of the first node; open TCP between the nodes",
    ),
    (
        r"Name or service not known|Temporary failure in name resolution|gai error",
        "a node's name does not resolve inside the job",
        "clusterctl provision INVENTORY base",
    ),
    (
        r"image not known|no such image|manifest unknown|unable to find.*image",
        "the job's image is not in this node's image store",
        "clusterctl provision INVENTORY slurm",
    ),
    (r"No space left on device", "a file system of this node is full", "free space on the named node"),
    (
        r"oom_kill|Out Of Memory|OutOfMemoryError|out of memory",
        "the memory granted to the job, or the GPU's, was not enough",
        "look at what else uses the memory of the named node",
    ),
    (
        r"Unable to create step",
        "Slurm would not start the step in its own allocation",
        "look at 'scontrol show job' and the batch log",
    ),
)


def accuse(rank: int | None, node: str, detail: str) -> dict[str, Any]:
    """Return one accusation, in the form that ddp_proof.py uses too; no rank means the machine as a whole."""
    return {"rank": rank, "node": node, "parameter": "", "detail": detail}


def _accuse_all(records: Iterable[Mapping[str, Any]], why: str) -> list[dict[str, Any]]:
    """Accuse each record's rank; ``why`` may name the record's keys in braces, and ``text`` of its error."""
    return [
        accuse(
            record["rank"], record["node"], why.format(**{**record, "text": (record.get("error") or {}).get("text")})
        )
        for record in records
    ]


def _missing(records: Sequence[Mapping[str, Any]], expected: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return nodes on which fewer ranks than expected left a record, and ranks that several nodes claim."""
    started = Counter(str(record["node"]) for record in records)
    claimed: dict[int, set[str]] = defaultdict(set)
    for record in records:
        claimed[int(record["rank"])].add(str(record["node"]))
    found = [
        accuse(None, node, f"{started[node]} of {count} ranks left a record: never started, or the machine is gone")
        for node, count in sorted(expected.items())
        if started[node] < count
    ]
    return found + [
        accuse(rank, ", ".join(sorted(nodes)), "is claimed by several nodes: they ran separate jobs")
        for rank, nodes in sorted(claimed.items())
        if len(nodes) > 1
    ]


def _out_of_step(unfinished: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the ranks that waited in another conversation than the rest; all of them where there is no majority."""
    subjects = Counter(str(record["waiting"]) for record in unfinished)
    if len(subjects) < 2:
        return []
    usual, count = subjects.most_common(1)[0]
    if count * 2 > len(unfinished):
        odd = [record for record in unfinished if record["waiting"] != usual]
        return _accuse_all(odd, f"was in '{{waiting}}', the others in '{usual}'")
    return _accuse_all(unfinished, "was in '{waiting}', out of step with the others")


def who_broke(records: Sequence[Mapping[str, Any]], expected: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return who made the others stop, strongest evidence first; empty where all are victims alike.

    A rank whose peer dies reports a broken connection or is ended by torchrun: a victim. The culprit gives an error of
    its own, or left nothing, or stopped without a word, or was not where the others waited for it.
    """
    unfinished = [record for record in records if record["state"] != "done"]
    own = [record for record in unfinished if (record.get("error") or {}).get("kind") == "own"]
    if own:
        return _accuse_all(own, "failed in step {step}: {text}")
    if found := _missing(records, expected):
        return found
    silent = [record for record in unfinished if record["state"] == "running"]
    if silent and len(silent) < len(records):
        busy = [record for record in silent if not record["waiting"]]
        return _accuse_all(busy or silent, "died without a word in step {step} (killed, or its machine failed)")
    absent = [record for record in unfinished if not record["waiting"]]
    if absent and len(absent) < len(records):
        return _accuse_all(absent, "was busy elsewhere in step {step} while the others waited for it")
    return _out_of_step(unfinished)


def cause_in(logs: Iterable[Sequence[str]]) -> tuple[str, str]:
    """Return (cause, fix) of the first log that has a line we know; empty texts where none has."""
    for log in logs:
        for pattern, cause, fix in LOG_CAUSES:
            if any(re.search(pattern, line) for line in log):
                return cause, fix
    return "", ""
