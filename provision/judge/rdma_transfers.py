"""Did data move between the machines, over these very adapters, as fast as they can? Pure judgement.

The results are those of the module ``rdma_transfers``: what each tool printed on this machine, and by how much each of
the device's counters moved meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provision.rdma.rounds import Rail, rails_of

Result = Mapping[str, Any]

#: Of the line rate; healthy adapters reach 0.9 and more of it with messages of this size.
SHARE = 0.8

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


@dataclass(frozen=True)
class Seen:
    """What a machine did. ``expected`` are the peers of its steps; ``problem`` is why there are no results."""

    results: Sequence[Result]
    expected: Sequence[str]
    rails: Sequence[Rail]
    pairs: str = ""
    problem: str = ""
    cuda: bool = False


def checks(seen: Seen, *, simulated: bool = False, share: float = SHARE, gpus: int = 0) -> list[dict[str, Any]]:
    """Return the checks of one machine. Software adapters are never counted as proven hardware."""
    if not seen.rails:
        return [_check("transfer", "skip", observed="no active RDMA port", expected="none")]
    simulated = simulated or any(rail.software for rail in seen.rails)
    if not seen.expected and not seen.problem:
        found = [_check("transfer", "skip", observed="no second machine with an active port", expected="one or more")]
    else:
        found = [_reached(seen)]
        for test in ("write", "read"):
            if any(result["test"] == test for result in seen.results):
                found.append(_bandwidth(seen, test, share))
        if any(_worked(result) for result in seen.results):
            found += [_moved(seen), _errors(seen)]
        if gpus:
            found.append(_gpu_memory(seen))
    return [{**check, "simulated": simulated} for check in found]


def judge(
    moved: Mapping[str, Any], host: str, found: Mapping[str, Any], plan: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the checks of one machine from the module's answer, the machine's facts, and the plan of the run."""
    steps = plan["steps"].get(host, ())
    problem = "" if "results" in moved or not steps else str(moved.get("msg") or "the measurement gave no answer")
    seen = Seen(
        results=moved.get("results") or (),
        expected=[str(step["peer"]) for step in steps],
        rails=rails_of(found),
        pairs=str(plan["pairs"]),
        problem=problem,
        cuda=bool(moved.get("cuda")),
    )
    return checks(
        seen, simulated=bool(settings["simulated"]), share=float(settings["share"]), gpus=len(found.get("gpus", ()))
    )


def cause(text: str) -> tuple[str, str]:
    """Return what a tool's words mean and what to do."""
    for pattern, meaning, fix in CAUSES:
        if re.search(pattern, text):
            return meaning, fix
    return "the tool says no more than this", "run it by hand: ib_write_bw on both machines"


def gigabits(output: str) -> float | None:
    """Return the average bandwidth in Gb/s of the last row of numbers that perftest printed."""
    rows = re.findall(r"^\s*(\d+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s*$", output, re.MULTILINE)
    return float(rows[-1][3]) if rows else None


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


def _worked(result: Result) -> bool:
    return not result.get("problem") and result.get("rc") == 0


def _text(result: Result) -> str:
    ended = "rc 124" if result.get("rc") == 124 else ""
    other = f"the other side: {result['other']}" if result.get("other") else ""
    return " ".join(f"{result.get('problem') or ''} {result.get('output') or ''} {ended} {other}".split())


def _reached(seen: Seen) -> dict[str, Any]:
    failed = [result for result in seen.results if not _worked(result)]
    met = {str(result["peer"]) for result in seen.results}
    silent = [peer for peer in seen.expected if peer not in met]
    if seen.problem or silent:
        observed = seen.problem or f"nothing is known about {', '.join(silent[:5])}"
        return _check(
            "transfer", "unknown", observed=observed, expected="an answer of every machine",
            cause="the measurement did not end", fix="clusterctl verify again; journalctl -b on the machine",
        )  # fmt: skip
    told = [f"{one['test']} with {one['peer']}{_over(one)}: {_last(_text(one))}" for one in failed]
    meant = [cause(_text(one)) for one in failed]
    tests = ", ".join(sorted({str(result["test"]) for result in seen.results}))
    done = f"{tests} with {', '.join(_shortened(sorted(met)))} over {len(seen.rails)} rails{seen.pairs}"
    return _check(
        "transfer",
        "fail" if failed else "pass",
        observed="; ".join(_shortened(told)) or done,
        expected="every transfer succeeds",
        cause="; ".join(dict.fromkeys(meaning for meaning, _ in meant)),
        fix="; ".join(dict.fromkeys(fix for _, fix in meant)),
    )


def _bandwidth(seen: Seen, test: str, share: float) -> dict[str, Any]:
    """Judge the side that measures; the other sees no rate, only its counters."""
    rates = {(rail.device, rail.port): rail.rate for rail in seen.rails if not rail.software}
    told, slow = [], []
    for result in seen.results:
        reached = gigabits(str(result.get("output") or "")) if result["test"] == test and _worked(result) else None
        if reached is None:
            continue
        line = rates.get((str(result["device"]), int(result["port"])))
        # On emulated processors, whose clocks contradict each other, perftest prints zeros.
        rate = f"{reached:g} Gb/s" if reached else "data moved, no rate told"
        told.append(f"{result['device']} {rate}" + (f" of {line:g}" if line else ""))
        if line and reached < share * line:
            slow.append(told[-1] + f" with {result['peer']}")
    tried = any(result["test"] == test and not _worked(result) for result in seen.results)
    verdict = "fail" if slow or (tried and not told) else "pass"
    served = "" if told else "measured by the other side"
    return _check(
        f"{test}_bandwidth",
        verdict,
        observed="; ".join(_shortened(slow or told)) or ("nothing was measured" if tried else served),
        expected=f"{share:.0%} of the line rate" if any(rates.values()) else "data moves",
        cause="the adapter's PCIe slot has fewer lanes, the link is degraded, or the processor sleeps"
        if slow
        else "see rdma.transfer",
        fix="lspci -vv: LnkSta against LnkCap; mlxlink; cpupower frequency-set -g performance",
    )


def _moved(seen: Seen) -> dict[str, Any]:
    """Compare what the tools say they moved with what the device counted: data could have gone another way."""
    by_device: dict[str, int | None] = {}
    for result in filter(_worked, seen.results):
        counted = carried(result)
        before = by_device.get(str(result["device"]), 0)
        by_device[str(result["device"])] = before if counted is None else (before or 0) + counted
    still = [device for device, counted in by_device.items() if not counted]
    missing = [rail.device for rail in seen.rails if rail.device not in by_device]
    told = [f"{device} {(counted or 0) / 1e6:.0f} MB" for device, counted in by_device.items()]
    return _check(
        "counters",
        "fail" if still or missing else "pass",
        observed="; ".join(_shortened([*told, *(f"{device} took no part" for device in missing)])),
        expected="every device's counters move with the data",
        cause="the data did not go over this device, or its driver counts nothing",
        fix="rdma statistic show; ibv_devinfo",
    )


def _errors(seen: Seen) -> dict[str, Any]:
    risen: dict[str, int] = {}
    for result in seen.results:
        for name, number in (result.get("moved") or {}).items():
            if name in ERRORS and number > 0:
                risen[f"{result['device']} {name}"] = risen.get(f"{result['device']} {name}", 0) + int(number)
    # Software devices drop packets when the processor is busy and send them again, which is their way.
    software = {rail.device for rail in seen.rails if rail.software}
    serious = [name for name in risen if name.split()[0] not in software]
    return _check(
        "errors",
        "fail" if serious else "pass",
        observed=", ".join(_shortened([f"{name} +{number}" for name, number in risen.items()])) or "none risen",
        expected="no error counter rises while data moves",
        cause="a bad cable, transceiver or connector, or a congested switch",
        fix="swap the cable, then the port; mlxlink -d DEVICE -m -c",
    )


def _gpu_memory(seen: Seen) -> dict[str, Any]:
    told = (
        "measured with the machines' memory only"
        if seen.cuda
        else "this machine's perftest was built without CUDA, as the distributions' is"
    )
    return _check(
        "gpu_memory", "skip", observed=f"not proven: {told}", expected="a transfer from GPU to GPU",
        cause="", fix="see the NCCL transport of the training job's proof",
    )  # fmt: skip


def _over(result: Result) -> str:
    return f" over {result['device']}:{result['port']}" if result.get("device") else ""


def _last(text: str) -> str:
    return text[-160:].strip() or "no word"


def _shortened(lines: Sequence[str]) -> list[str]:
    return [*lines[:5], *([f"and {len(lines) - 5} more"] if len(lines) > 5 else [])]


def _check(name: str, verdict: str, **texts: Any) -> dict[str, Any]:
    if verdict in ("pass", "skip"):
        texts.update(cause="", fix=texts.get("fix", "") if verdict == "skip" else "")
    return {
        "id": f"rdma.{name}",
        "host": "",
        "level": "cluster",
        "verdict": verdict,
        "source": "rdma_transfers",
        **texts,
    }
