"""Did data move between the machines, over these very adapters, as fast as they can? Pure judgement.

The results are those of the module ``rdma_transfers``: what each tool printed on this machine, and by how much each of
the device's counters moved meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from provision.model.checks import Check, Level, Subject
from provision.model.text import brief, one_line
from provision.rdma.perftest import ERRORS, Result, carried, cause, gigabits
from provision.rdma.rounds import Rail, rails_of

#: Of what moves between machines; what ports look like at rest is ``provision.judge.rdma``'s.
SUBJECT = Subject(
    "rdma",
    ("transfer", "write_bandwidth", "read_bandwidth", "counters", "errors", "gpu_memory"),
    level=Level.CLUSTER,
)
_SOURCE = "rdma_transfers"

#: Of the line rate; healthy adapters reach 0.9 and more of it with messages of this size.
SHARE = 0.8


@dataclass(frozen=True)
class Seen:
    """What a machine did. ``expected`` are the peers of its steps; ``problem`` is why there are no results.

    ``measures`` are those measurements, as (peer, device), that the plan has this machine make and not its peer.
    """

    results: Sequence[Result]
    expected: Sequence[str]
    rails: Sequence[Rail]
    pairs: str = ""
    problem: str = ""
    cuda: bool = False
    measures: Collection[tuple[str, str]] = ()


def checks(
    moved: Mapping[str, Any], host: str, found: Mapping[str, Any], plan: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[Check]:
    """Return the checks of one machine from the module's answer, the machine's facts, and the plan of the run.

    ``settings``: ``simulated``, and ``share`` of the line rate that is expected.
    """
    steps = plan["steps"].get(host, ())
    results, problem = _results(moved.get("results")) if "results" in moved else ([], "")
    if steps and "results" not in moved:
        problem = one_line(str(moved.get("msg") or "")) or "the measurement gave no answer"
    seen = Seen(
        results=results,
        expected=[str(step["peer"]) for step in steps],
        rails=rails_of(found, plan["unused"].get(host, ())),
        pairs=str(plan["pairs"]),
        problem=problem,
        cuda=bool(moved.get("cuda")),
        measures={
            (str(step["peer"]), str(rail["device"]))
            for step in steps
            if step["bandwidth"] and not step["serves"]
            for rail in step["rails"]
        },
    )
    return judged(
        seen, simulated=bool(settings["simulated"]), share=float(settings["share"]), gpus=len(found.get("gpus", ()))
    )


#: What each result has, and of which type; the second may be left out.
_FIELDS: Mapping[str, type] = {"peer": str, "test": str, "device": str, "port": int}
_OPTIONAL: Mapping[str, type] = {
    "serves": bool, "problem": str, "output": str, "other": str, "rc": int, "moved": dict,
}  # fmt: skip


def _is(value: Any, kind: type) -> bool:
    """Tell whether a value is of a type; Ansible hands over subclasses, and true is no number here."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _results(answer: Any) -> tuple[list[Result], str]:
    """Return those results that are some, and what is wrong with the rest: a machine may have answered anything."""
    listed = list(answer) if isinstance(answer, list) else []
    found: list[Result] = [
        one
        for one in listed
        if isinstance(one, dict)
        and all(_is(one.get(name), kind) for name, kind in _FIELDS.items())
        and all(one.get(name) is None or _is(one[name], kind) for name, kind in _OPTIONAL.items())
        and all(_is(number, int) and abs(number) < 2**66 for number in (one.get("moved") or {}).values())
    ]
    whole = isinstance(answer, list) and len(found) == len(listed)
    return found, "" if whole else "the measurement's answer is not what the module gives"


def judged(seen: Seen, *, simulated: bool = False, share: float = SHARE, gpus: int = 0) -> list[Check]:
    """Return the checks of what one machine did. Software adapters are never counted as proven hardware."""
    if not seen.rails:
        return SUBJECT.all_skipped("no active RDMA port that jobs use")
    simulated = simulated or any(rail.software for rail in seen.rails)
    if not seen.expected and not seen.problem:
        found = SUBJECT.all_skipped("no second machine with an active port", unproven=True)
    else:
        found = [_reached(seen), *(_bandwidth(seen, test, share) for test in ("write", "read"))]
        if any(_worked(result) for result in seen.results):
            found += [_moved(seen), _errors(seen)]
        else:
            found += [SUBJECT.skip(name, "no transfer succeeded", unproven=True) for name in ("counters", "errors")]
        found.append(_gpu_memory(seen, gpus))
    return [replace(check, simulated=simulated) for check in found]


def _worked(result: Result) -> bool:
    return not result.get("problem") and result.get("rc") == 0


def _text(result: Result) -> str:
    ended = "rc 124" if result.get("rc") == 124 else ""
    other = f"the other side: {result['other']}" if result.get("other") else ""
    return " ".join(f"{result.get('problem') or ''} {result.get('output') or ''} {ended} {other}".split())


def _reached(seen: Seen) -> Check:
    failed = [result for result in seen.results if not _worked(result)]
    met = {str(result["peer"]) for result in seen.results}
    silent = [peer for peer in seen.expected if peer not in met]
    if seen.problem or silent:
        return SUBJECT.unknown(
            "transfer",
            seen.problem or f"nothing is known about {', '.join(silent[:5])}",
            cause="the measurement did not end",
            fix="clusterctl verify again; journalctl -b on the machine",
        )
    words = [f"{one['test']} with {one['peer']}{_over(one)}: {_last(_text(one))}" for one in failed]
    meant = [cause(_text(one)) for one in failed]
    tests = ", ".join(sorted({str(result["test"]) for result in seen.results}))
    done = f"{tests} with {brief(sorted(met), between=', ')} over {len(seen.rails)} rails{seen.pairs}"
    return SUBJECT.check(
        "transfer",
        not failed,
        brief(words) or done,
        "every transfer succeeds",
        source=_SOURCE,
        cause="; ".join(dict.fromkeys(meaning for meaning, _ in meant)),
        fix="; ".join(dict.fromkeys(fix for _, fix in meant)),
    )


def _bandwidth(seen: Seen, test: str, share: float) -> Check:
    """Judge the side that measures; the other sees no rate, only its counters."""
    name, tried = f"{test}_bandwidth", [result for result in seen.results if result["test"] == test]
    measured = [result for result in tried if not result.get("serves")]
    missing = sorted(set(seen.measures) - {(str(one["peer"]), str(one["device"])) for one in measured})
    broken = bool(seen.problem) or not all(map(_worked, seen.results))
    if missing and broken and not tried:
        return SUBJECT.skip(name, "nothing was measured: see rdma.transfer", unproven=True)
    if missing and not broken:
        return SUBJECT.unknown(
            name,
            f"nothing is known of {brief([f'{device} with {peer}' for peer, device in missing])}",
            cause="the machine was to measure it, and its answer has no such measurement",
            fix="clusterctl verify again; journalctl -b on the machine",
        )
    if not tried:
        return SUBJECT.skip(name, "each rail is measured once, with another machine", unproven=bool(seen.problem))
    worked = [result for result in tried if _worked(result)]
    measured = [result for result in measured if _worked(result)]
    if not measured:
        if len(worked) < len(tried):
            return SUBJECT.check(
                name,
                False,
                "nothing was measured",
                source=_SOURCE,
                cause="the transfer failed",
                fix="see rdma.transfer",
            )
        return SUBJECT.skip(name, "measured by the other side")
    reached = {id(result): gigabits(str(result.get("output") or "")) for result in measured}
    unread = [f"{result['device']} with {result['peer']}" for result in measured if reached[id(result)] is None]
    if unread:
        return SUBJECT.unknown(
            name,
            f"no rate could be read of {brief(unread)}",
            cause="the tool's table has another form than perftest's",
            fix="run it by hand and look at its last line: ib_write_bw --report_gbits on both machines",
        )
    rates = {(rail.device, rail.port): rail.rate for rail in seen.rails if not rail.software}
    words, slow = [], []
    for result in measured:
        got, line = reached[id(result)] or 0.0, rates.get((str(result["device"]), int(result["port"])))
        # On emulated processors, whose clocks contradict each other, perftest prints zeros.
        rate = f"{got:g} Gb/s" if got else "data moved, no rate printed"
        words.append(f"{result['device']} {rate}" + (f" of {line:g}" if line else ""))
        if line and got < share * line:
            slow.append(words[-1] + f" with {result['peer']}")
    return SUBJECT.check(
        name,
        not slow and len(worked) == len(tried),
        brief(slow or words),
        f"{share:.0%} of the line rate" if any(rates.values()) else "data moves",
        source=_SOURCE,
        cause="the adapter's PCIe slot has fewer lanes, the link is degraded, or the processor sleeps"
        if slow
        else "another transfer failed",
        fix="lspci -vv: LnkSta against LnkCap; mlxlink; cpupower frequency-set -g performance"
        if slow
        else "see rdma.transfer",
    )


def _moved(seen: Seen) -> Check:
    """Compare what the tools say they moved with what the device counted: data could have gone another way."""
    by_device: dict[str, int | None] = {}
    for result in filter(_worked, seen.results):
        counted = carried(result)
        before = by_device.get(str(result["device"]), 0)
        by_device[str(result["device"])] = before if counted is None else (before or 0) + counted
    still = [device for device, counted in by_device.items() if not counted]
    missing = [rail.device for rail in seen.rails if rail.device not in by_device]
    words = [f"{device} {(counted or 0) / 1e6:.0f} MB" for device, counted in by_device.items()]
    return SUBJECT.check(
        "counters",
        not still and not missing,
        brief([*words, *(f"{device} took no part" for device in missing)]),
        "every device's counters move with the data",
        source=_SOURCE,
        cause="the data did not go over this device, or its driver counts nothing",
        fix="rdma statistic show; ibv_devinfo",
    )


def _errors(seen: Seen) -> Check:
    risen: dict[str, int] = {}
    for result in seen.results:
        for name, number in (result.get("moved") or {}).items():
            if name in ERRORS and number > 0:
                risen[f"{result['device']} {name}"] = risen.get(f"{result['device']} {name}", 0) + int(number)
    # Software devices drop packets when the processor is busy and send them again, which is their way.
    software = {rail.device for rail in seen.rails if rail.software}
    serious = [name for name in risen if name.split()[0] not in software]
    return SUBJECT.check(
        "errors",
        not serious,
        brief([f"{name} +{number}" for name, number in risen.items()], between=", ") or "none risen",
        "no error counter rises while data moves",
        source=_SOURCE,
        cause="a bad cable, transceiver or connector, or a congested switch",
        fix="swap the cable, then the port; mlxlink -d DEVICE -m -c",
    )


def _gpu_memory(seen: Seen, gpus: int) -> Check:
    if not gpus:
        return SUBJECT.skip("gpu_memory", "no GPU")
    why = (
        "measured with the machines' memory only"
        if seen.cuda
        else "this machine's perftest was built without CUDA, as the distributions' is"
    )
    # What is left open here, the training job's own NCCL answers, and it counts there: gpudirect.traffic.
    return SUBJECT.skip("gpu_memory", f"not proven here: {why}; see gpudirect.traffic")


def _over(result: Result) -> str:
    return f" over {result['device']}:{result['port']}" if result.get("device") else ""


def _last(text: str) -> str:
    return text[-160:].strip() or "no word"
