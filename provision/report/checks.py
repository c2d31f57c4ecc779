"""Checks as text for a person: failures last, machines with the same result folded, passes and skips counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from provision import hostlist
from provision.events.verdict import NEVER_RAN
from provision.model.checks import Check, Verdict
from provision.model.text import brief

COLOURS = {
    Verdict.PASS: "green",
    Verdict.WARN: "yellow",
    Verdict.FAIL: "bold red",
    Verdict.UNKNOWN: "bold magenta",
    Verdict.SKIP: "dim",
}

#: Checks of one subject that are named, and subjects; more are counted.
_NAMED = 3
_SUBJECTS = 6
#: Machines with one cause of which each says what it saw; of more, these do.
_EACH = 2

#: By (machine, check id), the checks that it rests on and that did not pass, as ``id@machine``.
Follows = Mapping[tuple[str, str], Sequence[str]]


class Lines(Protocol):
    """What is written to: ``provision.report.summary.Printer``."""

    @property
    def narrow(self) -> bool:
        """True where there is no room for columns."""

    def line(self, text: str = "", style: str = "", indent: int = 0) -> None:
        """Write one paragraph."""


def fold(hosts: Iterable[str]) -> str:
    """Return machines as a hostlist, as an administrator of Slurm writes them."""
    return hostlist.fold(set(hosts) - {""})


def show_checks(
    printer: Lines,
    checks: Sequence[Check],
    *,
    every: bool = False,
    follows: Follows | None = None,
) -> None:
    """Write what stays unproven, warnings, then what did not pass, roots first: the end is what a terminal shows.

    ``every`` shows each check by itself, those that passed or were skipped too.
    """
    below = follows or {}
    if every:
        _each(printer, checks, alike=False)
    else:
        _unproven(printer, [check for check in checks if check.verdict is Verdict.SKIP and check.unproven])
        told = [check for check in checks if check.verdict is Verdict.WARN]
        told += [check for check in checks if not check.ok and (check.host, check.id) not in below]
        _each(printer, [check for check in told if not check.never_ran])
        _never_ran(printer, [check for check in told if check.never_ran])
    _undecided(printer, [check for check in checks if (check.host, check.id) in below], below)
    count = Counter(check.verdict for check in checks)
    counted = ", ".join(f"{count[verdict]} {verdict}" for verdict in Verdict if count[verdict])
    printer.line(f"checks: {counted}" + ("" if every else " (-v lists all)"))


def _each(printer: Lines, checks: Sequence[Check], *, alike: bool = True) -> None:
    """Write a line for each check and what it says; ``alike``: three machines with the same cause are enough."""
    groups: dict[Check, list[str]] = defaultdict(list)
    for check in checks:
        groups[replace(check, host="", details=())].append(check.host)
    rows = _alike(groups) if alike else [(check, fold(hosts)) for check, hosts in groups.items()]
    widths = [
        min(24, max(map(len, texts), default=0)) for texts in zip(*((at, one.id) for one, at in rows), strict=True)
    ]
    for check, place in rows:
        words = [f"{check.verdict:7}", place.ljust(widths[0]), check.id.ljust(widths[1]), _observation(check)]
        told = " ".join(word.strip() for word in words) if printer.narrow else "  ".join(words)
        printer.line(told, style=COLOURS[check.verdict])
        for word in ("cause", "fix"):
            if text := getattr(check, word):
                printer.line(f"{word}: {text}", indent=2 if printer.narrow else 9)


def _alike(groups: Mapping[Check, Sequence[str]]) -> list[tuple[Check, str]]:
    """Return checks with their machines; of many with one cause, whose texts differ by machine, one stands for all."""
    causes: dict[Check, list[Check]] = defaultdict(list)
    for check in groups:
        causes[replace(check, observed="", fix="") if check.cause else check].append(check)
    rows = []
    for same in causes.values():
        if len(same) <= _EACH:
            rows += [(check, fold(groups[check])) for check in same]
            continue
        first = fold(groups[same[0]])
        observed = brief(list(dict.fromkeys(check.observed for check in same)), _EACH)
        fix = f"for {first}: {same[0].fix}; the same for each of the others (-v lists them)" if same[0].fix else ""
        hosts = [host for check in same for host in groups[check]]
        rows.append((replace(same[0], observed=observed, fix=fix), fold(hosts)))
    return rows


def _never_ran(printer: Lines, checks: Sequence[Check]) -> None:
    by_id: dict[str, set[str]] = defaultdict(set)
    for check in checks:
        by_id[check.id].add(check.host)
    by_place: dict[str, list[str]] = defaultdict(list)
    for name, hosts in by_id.items():
        by_place[fold(hosts)].append(name)
    for place, names in by_place.items():
        printer.line(_row(printer, Verdict.UNKNOWN, place, f"{NEVER_RAN}: {_ids(names)}"), COLOURS[Verdict.UNKNOWN])


def _undecided(printer: Lines, checks: Sequence[Check], below: Follows) -> None:
    """Write one line for all that the same checks have kept from being decided."""
    groups: dict[tuple[str, ...], list[Check]] = defaultdict(list)
    places: dict[tuple[str, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for check in checks:
        roots = [root.partition("@") for root in below[check.host, check.id]]
        key = tuple(dict.fromkeys(name for name, _, _ in roots))
        groups[key].append(check)
        for name, _, host in roots:
            places[key][name].add(host)
    for key, members in groups.items():
        named = ", ".join(_at(name, places[key][name]) for name in key)
        hosts = {check.host for check in members}
        told = f"{len(members)} not decided, because {named} did not pass: {_at(_ids(c.id for c in members), hosts)}"
        printer.line(_row(printer, Verdict.UNKNOWN, "", told), COLOURS[Verdict.UNKNOWN])


def _unproven(printer: Lines, checks: Sequence[Check]) -> None:
    groups: dict[str, list[Check]] = defaultdict(list)
    for check in checks:
        groups[_observation(check)].append(check)
    for why, members in groups.items():
        named = _at(_ids(check.id for check in members), {check.host for check in members})
        printer.line(
            _row(printer, Verdict.SKIP, "", f"{named}: {why or 'no reason given'} (not proven)"), COLOURS[Verdict.SKIP]
        )


def _row(printer: Lines, verdict: Verdict, place: str, told: str) -> str:
    return (" " if printer.narrow else "  ").join(word for word in (f"{verdict:7}", place, told) if word)


def _at(what: str, hosts: Iterable[str]) -> str:
    return f"{what} ({place})" if (place := fold(hosts)) else what


def _ids(names: Iterable[str]) -> str:
    """Return ids, many of one subject as their number."""
    subjects: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        subjects[name.partition(".")[0]].append(name)
    told = [
        ", ".join(members) if len(members) <= _NAMED else f"{len(members)} {subject} checks"
        for subject, members in subjects.items()
    ]
    return brief(told, _SUBJECTS, ", ")


def _observation(check: Check) -> str:
    told = check.observed
    if check.verdict is Verdict.SKIP:
        told = told or check.source or check.cause
    elif check.expected and check.verdict is not Verdict.PASS:
        told += f"; expected {check.expected}" + (f" ({check.source})" if check.source else "")
    return told + (" (simulated)" if check.simulated else "")
