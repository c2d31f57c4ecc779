"""What ib_write_bw, ibv_rc_pingpong and rping print, and what a device's counters say meanwhile. Pure reading."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Result = Mapping[str, Any]

#: What a tool's words mean, in the order in which they are looked for. The first three are causes of the others.
CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"RLIMIT_MEMLOCK is \d+ bytes|Couldn't (?:register|allocate) MR|reg_mr failed|failed to create mr"
        r"|[Cc]annot allocate memory",
        "the process may not lock enough memory (memlock)",
        "ulimit -l as that user; for logins: clusterctl provision base; for jobs: clusterctl provision slurm",
    ),
    (
        r"[Pp]ort (?:number )?\d+ state is|Couldn't get port info|Port number \d+ .*not active",
        "the port is not active: its link is down",
        "ibstat; ip link; see the check rdma.state",
    ),
    (
        r"IB device \S+ not found|find the Infiniband/RoCE device|get context for|Failed to get IB devices list",
        "the device is gone: its driver was removed or has failed",
        "ibstat; dmesg | tail; load the driver again",
    ),
    (
        r"failed to run command|command not found|[Nn]o such file or directory",
        "a tool is missing",
        "clusterctl provision rdma",
    ),
    (
        r"Couldn't connect to|connect to \S+ port|[Uu]nable to (?:init the socket|open file descriptor for socket)"
        r"|No route to host|Connection refused|timed out|Network is unreachable"
        r"|rdma_resolve_addr|RDMA_CM_EVENT_(?:ADDR|ROUTE|REJECTED|UNREACHABLE)",
        "no connection to the other machine: no route, a firewall, or it does not run its side",
        "ping it; let machines of the cluster reach each other's rdma_userspace_port and the one after it",
    ),
    (
        r"Failed to modify QP(?: \d+)? to RT[RS]",
        "the two adapters cannot reach each other: other subnet, other partition, or another kind of address (GID)",
        "ibv_devinfo -v on both; the GIDs of type RoCE v2 with an IPv4 address must be in one network",
    ),
    (
        r"transport retry counter exceeded|Failed status 12|status 12\b|retry.?exc",
        "the other side does not answer on the fabric: a cable, the switch, or a firewall on UDP port 4791 (RoCE)",
        "ibstat on both; nft list ruleset; the switch port's counters",
    ),
    (r"it did not listen|did not end|\brc 124\b", "the tool hung", "run it by hand: ib_write_bw on both machines"),
)

#: Counters that no healthy transfer moves.
ERRORS = frozenset(
    """
    symbol_error link_error_recovery link_downed port_rcv_errors port_xmit_discards local_link_integrity_errors
    excessive_buffer_overrun_errors packet_seq_err implied_nak_seq_err local_ack_timeout_err out_of_sequence
    retry_exceeded_err send_rnr_retry_exceeded_err duplicate_request rnr_nak_retry_err
    """.split()  # noqa: SIM905 - read as a text, not as a list of quotes
)

#: A packet of software devices carries at most this many bytes; they count packets only.
_PACKET = 4096


_RATE = r"[0-9]{1,15}(?:\.[0-9]{0,15})?"


def cause(text: str) -> tuple[str, str]:
    """Return what a tool's words mean and what to do."""
    for pattern, meaning, fix in CAUSES:
        if re.search(pattern, text):
            return meaning, fix
    return "the tool says no more than this", "run it by hand: ib_write_bw on both machines"


def gigabits(output: str) -> float | None:
    """Return the average bandwidth in Gb/s of the last row of numbers that perftest printed."""
    rows = re.findall(rf"^[ \t]*\d+[ \t]+\d+[ \t]+{_RATE}[ \t]+({_RATE})[ \t]+{_RATE}[ \t\r]*$", output, re.MULTILINE)
    return float(rows[-1]) if rows else None


def carried(result: Result) -> int | None:
    """Return the bytes that the device's counters say it has sent and received; None where it counts none.

    Adapters count words of four bytes. Software devices count packets, of which nobody knows how full they were.
    """
    moved = result.get("moved") or {}
    if "port_xmit_data" in moved or "port_rcv_data" in moved:
        return 4 * (int(moved.get("port_xmit_data", 0)) + int(moved.get("port_rcv_data", 0)))
    if "sent_pkts" in moved or "rcvd_pkts" in moved:
        return _PACKET * (int(moved.get("sent_pkts", 0)) + int(moved.get("rcvd_pkts", 0)))
    return None
