"""By which way did NCCL move data between machines? Pure reading of its log (NCCL_DEBUG=INFO), from 2.4 to 2.30."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provision.hostlist import fold
from provision.judge import nccl_rails
from provision.model.checks import Check, Level, Subject, Verdict

SUBJECT = Subject("gpudirect", names=("traffic",), level=Level.JOB)

#: One connection of a channel over the network. The mark at its end is the proof; "GDR 1" elsewhere in the log is none.
_EDGE = re.compile(
    r"(?:Ring|Channel) \d+(?:/\d+)? : (?P<from>\d+)(?:\[[0-9a-f]+\])? -> (?P<to>\d+)(?:\[[0-9a-f]+\])?"
    r" \[(?P<side>send|receive)\] via NET/(?P<net>[^/\s]+)/(?P<nic>\d+)(?:\(\d+\))?"
    r"(?P<direct>/GDRDMA(?:\((?:PCI|C2C)\))?)?(?:/Shared)?\s*$",
    re.MULTILINE,
)
_DISABLED = re.compile(r"GPU Direct RDMA Disabled for (?:GPU \S+ / )?HCA (?P<adapter>\d+)(?: '(?P<name>[^']+)')?")
_DMABUF = re.compile(r"DMA-BUF is available on GPU device")


@dataclass(frozen=True)
class Edge:
    """One connection: from which rank to which, seen by the sending or the receiving side, over which network card."""

    source: int
    target: int
    side: str
    net: str
    nic: int
    direct: bool


def edges(text: str) -> list[Edge]:
    """Return every connection over a network that the log names; those within a machine are none."""
    return [
        Edge(int(one["from"]), int(one["to"]), one["side"], one["net"], int(one["nic"]), bool(one["direct"]))
        for one in _EDGE.finditer(text)
    ]


@dataclass(frozen=True)
class Rails:
    """What a machine has: what it told under ``rdma``, its GPUs, and the ports that the inventory leaves out."""

    told: Any = None
    gpus: int = 0
    unused: Sequence[str] = ()


def checks(
    logs: Mapping[str, str], *, bridges: str = "", required: bool = False, rails: Mapping[str, Rails] | None = None
) -> list[Check]:
    """Return ``gpudirect.traffic``, from a job's logs by machine.

    ``bridges`` names those with access control switched on, which is the usual reason; ``required``: a machine none of
    whose data goes by GPUDirect is an error. No connection in the log proves nothing: newer releases connect when the
    first large collective needs it.
    """
    found = {host: edges(text) for host, text in logs.items()}
    silent = sorted(host for host, seen in found.items() if not seen)
    if not logs or silent:
        return _said(
            Verdict.UNKNOWN,
            observed=f"no connection over a network in the log of {', '.join(silent[:5]) or 'any machine'}",
            cause="the job ran on one machine, its log was not kept, or no large collective ran",
            fix="run it on two machines or more with NCCL_DEBUG=INFO",
        )
    sockets = sorted(host for host, seen in found.items() if any(edge.net == "Socket" for edge in seen))
    if sockets:
        return _said(
            Verdict.FAIL,
            observed=f"NCCL used TCP on {', '.join(sockets[:5])}",
            cause="it found no usable RDMA device: /dev/infiniband is not in the container, or all ports are down",
            fix="set NCCL_NET=IB to see why; ibv_devinfo inside the container",
        )
    without = {host: sorted({edge.nic for edge in seen if not edge.direct}) for host, seen in found.items()}
    without = {host: nics for host, nics in without.items() if nics}
    if without:
        told = [f"{host}: rails {', '.join(map(str, nics))}" for host, nics in sorted(without.items())]
        off = sorted({one["name"] or one["adapter"] for text in logs.values() for one in _DISABLED.finditer(text)})
        staged = [host for host in without if not any(edge.direct for edge in found[host])]
        return _said(
            Verdict.FAIL if required and staged else Verdict.WARN,
            observed="NCCL used RDMA without GPUDirect on " + "; ".join(told[:5]),
            cause="; ".join(
                [
                    *([f"NCCL says that it is disabled for {', '.join(off)}"] if off else []),
                    f"ACS is on at {bridges}"
                    if bridges
                    else "adapter and GPU are too far apart, or the GPU's memory cannot be reached",
                ]
            ),
            fix="see the checks gpudirect.*; nvidia-smi topo -m; NCCL_NET_GDR_LEVEL",
        )
    if lacking := _lacking(logs, found, rails or {}):
        return lacking
    way = "DMA-BUF" if any(_DMABUF.search(text) for text in logs.values()) else "peer memory"
    number = sum(len(seen) for seen in found.values())
    return _said(
        Verdict.PASS, observed=f"{number} connections of {len(found)} machines, all with GPUDirect RDMA by {way}"
    )


def _lacking(logs: Mapping[str, str], found: Mapping[str, list[Edge]], rails: Mapping[str, Rails]) -> list[Check]:
    """Return the check where ports that jobs should use carried nothing; none where all did, or nobody can tell.

    A port that NCCL was not shown is missing in every job: an error. One that it saw and did not take is its choice.
    """
    hidden: dict[tuple[str, ...], list[str]] = {}
    passed: dict[tuple[str, ...], list[str]] = {}
    for host, has in rails.items():
        nics = {edge.nic for edge in found.get(host, ())}
        unseen, seen = nccl_rails.idle(logs.get(host, ""), nics, has.told, has.gpus, has.unused)
        if unseen:
            hidden.setdefault(tuple(unseen), []).append(host)
        if seen:
            passed.setdefault(tuple(seen), []).append(host)
    if not hidden and not passed:
        return []
    parts = [f"{', '.join(ports[:8])} of {fold(hosts)}" for ports, hosts in (hidden or passed).items()]
    return _said(
        Verdict.FAIL if hidden else Verdict.WARN,
        observed=f"every connection went by GPUDirect RDMA, but none over {'; '.join(parts[:5])}",
        cause="NCCL was not shown these ports: NCCL_IB_HCA leaves them out, or their device files are not in the "
        "container. NCCL_IB_HCA compares beginnings: mlx5_1 also matches mlx5_10"
        if hidden
        else "NCCL saw these ports and connected without them: it takes the ports that are nearest to the GPUs",
        fix="write = before the names in NCCL_IB_HCA, or unset it; ls /dev/infiniband in a job; name ports that jobs "
        "do not use in node_rdma_unused",
        expected="every port that jobs can use carries data",
    )


def _said(
    verdict: Verdict,
    observed: str,
    cause: str = "",
    fix: str = "",
    expected: str = "every connection between machines with GPUDirect RDMA",
) -> list[Check]:
    return [SUBJECT.check("traffic", verdict, observed, expected, source="NCCL's log", cause=cause, fix=fix)]
