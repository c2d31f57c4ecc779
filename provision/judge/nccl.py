"""By which way did NCCL move data between machines? Pure reading of its log (NCCL_DEBUG=INFO), from 2.4 to 2.30."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

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


def checks(logs: Mapping[str, str], *, bridges: str = "", required: bool = False) -> list[Check]:
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
            fix="set NCCL_NET=IB, then it says why; ibv_devinfo inside the container",
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
    way = "DMA-BUF" if any(_DMABUF.search(text) for text in logs.values()) else "peer memory"
    number = sum(len(seen) for seen in found.values())
    return _said(
        Verdict.PASS, observed=f"{number} connections of {len(found)} machines, all with GPUDirect RDMA by {way}"
    )


def _said(verdict: Verdict, observed: str, cause: str = "", fix: str = "") -> list[Check]:
    expected = "every connection between machines with GPUDirect RDMA"
    return [SUBJECT.check("traffic", verdict, observed, expected, source="NCCL's log", cause=cause, fix=fix)]
