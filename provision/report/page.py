"""The proof of one run for a colleague: a record ordered as the templates beside this show it. Pure."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provision.errors import ClusterctlError
from provision.hostlist import expand
from provision.model.checks import Check, Verdict
from provision.model.text import brief, one_line
from provision.report.record import (
    NAME,
    ORDER,
    RANK,
    WORDS,
    Ink,
    Read,
    Record,
    listed,
    mapping,
    number_in,
    place,
    read_checks,
    verdict_of,
    when,
    word_of,
    worst_of,
)
from provision.report.training import Training, speed_of, trainings

#: The columns: what people call a subject, and the checks' prefixes that belong to it.
SUBJECTS = {
    "access": ("access", "run"),
    "base": ("base_system", "hardware"),
    "users": ("cluster_users",),
    "storage": ("shared_storage", "nfs_server"),
    "containers": ("container_engine", "engine", "images", "container_images", "job_images"),
    "gpu": ("nvidia_driver", "cuda_toolkit", "mig", "nvidia_mig", "nvidia_containers"),
    "rdma": ("rdma", "rdma_userspace", "gpudirect"),
    "munge": ("munge",),
    "slurm": (
        *("slurm", "slurm_accounts", "slurm_client", "slurm_conf", "slurm_database", "slurm_image", "slurm_service"),
    ),
    "session": ("session",),
    "jobs": ("job", "job_docker"),
    "training": ("ddp", "ddp_validation"),
    "monitoring": ("monitoring", "machine_metrics"),
    "other": (),
}
_COLUMN = {prefix: name for name, prefixes in SUBJECTS.items() for prefix in prefixes}

#: What the table of proofs counts together.
_PROVEN = (("pass",), ("simulated",), ("warn",), ("fail", "unknown", "unproven"))
#: Findings and rows that are shown; the others are counted.
_FINDINGS, _ROWS = 40, 500
#: Bytes of all texts of a page: a share for each machine, and no more than this whatever they say.
_INK, _INK_EACH, _INK_MOST = 150_000, 12_000, 1_800_000
#: Bytes of markup around one line.
_LINE = 70


@dataclass(frozen=True)
class Finding:
    """What did not pass, or warns, for one reason; ``rests`` counts the checks that it kept from being decided."""

    word: str
    where: str
    ids: str
    observed: str
    expected: str
    cause: str
    fix: str
    rests: int = 0


@dataclass(frozen=True)
class Line:
    """One check of a machine."""

    word: str
    id: str
    observed: str


@dataclass(frozen=True)
class Row:
    """Machines that are alike, with a word for each subject; ``more`` checks are left out of ``lines``."""

    name: str
    machines: int
    word: str
    cells: tuple[str, ...]
    lines: tuple[Line, ...]
    more: int = 0


@dataclass(frozen=True)
class Tile:
    """A compute node in the picture."""

    name: str
    word: str
    gpus: int
    adapters: int


@dataclass(frozen=True)
class Kind:
    """Nodes that are declared alike."""

    title: str
    tiles: tuple[Tile, ...]
    more: int = 0


@dataclass(frozen=True)
class Comparison:
    """What changed since another run; ``worse`` and ``better`` are (word before, word now, which check and where)."""

    title: str
    worse: tuple[tuple[str, str, str], ...]
    better: tuple[tuple[str, str, str], ...]
    counts: tuple[int, int]
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Page:
    """All that a page says. What begins with ``more`` counts those that it leaves out.

    ``proven`` is for each subject how many checks passed, passed on simulated hardware, warn, and prove nothing.
    ``machines`` are those that are no compute nodes, each with its function and its word.
    """

    verdict: str
    headline: str
    about: str
    cluster: str
    run: str
    when: str
    notes: tuple[str, ...]
    counts: Mapping[str, int]
    simulated: tuple[str, ...]
    findings: tuple[Finding, ...]
    more_findings: int
    warnings: tuple[Finding, ...]
    more_warnings: int
    unproven: tuple[Finding, ...]
    more_unproven: int
    proven: tuple[tuple[str, tuple[int, ...]], ...]
    subjects: tuple[str, ...]
    rows: tuple[Row, ...]
    more_rows: int
    machines: tuple[tuple[str, str, str], ...]
    kinds: tuple[Kind, ...]
    partitions: tuple[tuple[str, str], ...]
    proof: tuple[Line, ...]
    training: tuple[Training, ...]
    comparison: Comparison | None
    repeat: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def _column(name: str) -> str:
    return _COLUMN.get(name.partition(".")[0], "other")


def _findings(checks: Sequence[Check], read: Read, ink: Ink) -> tuple[tuple[Finding, ...], int]:
    """Return checks by their reason, first the worst, on which others rest; and how many reasons are left out."""
    rests = Counter(root for roots in read.follows.values() for root in roots)
    groups: dict[tuple[str, ...], list[Check]] = defaultdict(list)
    for check in checks:
        same = (check.id, check.cause) if check.cause else ("", check.observed)
        groups[word_of(check), *same, check.fix].append(check)

    def order(group: tuple[tuple[str, ...], Sequence[Check]]) -> tuple[int, int, bool]:
        (word, *_), members = group
        return ORDER.index(word), -max(rests[f"{one.id}@{one.host}"] for one in members), not members[0].cause

    found, room = [], ink.share(3)
    for (word, *_), members in sorted(groups.items(), key=order)[:_FINDINGS]:
        first = members[0]
        ids = list(dict.fromkeys(check.id for check in members))
        observed = list(dict.fromkeys(check.observed for check in members))
        found.append(
            Finding(
                word,
                place((check.host for check in members), room),
                brief(ids, 4, ", "),
                room(brief(observed, 2)),
                room(first.expected),
                room(first.cause),
                room(first.fix),
                max((rests[f"{check.id}@{check.host}"] for check in members), default=0),
            )
        )
    ink.left += room.left
    return tuple(found), max(0, len(groups) - _FINDINGS)


def _rows(
    checks: Sequence[Check], subjects: Sequence[str], trained: Mapping[str, str], ink: Ink
) -> tuple[list[Row], int]:
    """Return the machines, those with the same words together, the worst first; and how many rows are left out.

    ``trained`` are machines that took part in the training, with its word: the checks of a job are the controller's.
    """
    by_host: dict[str, dict[str, Check]] = defaultdict(dict)
    for check in checks:
        before = by_host[check.host].get(check.id, check)
        by_host[check.host][check.id] = min(before, check, key=lambda one: ORDER.index(word_of(one)))
    groups: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for host, own in by_host.items():
        groups[tuple(sorted((name, word_of(check)) for name, check in own.items()))].append(host)
    ordered = sorted((ORDER.index(worst_of(word for _, word in key)), hosts, key) for key, hosts in groups.items())
    rows: list[Row] = []
    for _, hosts, key in ordered[:_ROWS]:
        cells: dict[str, list[str]] = {name: [] for name in subjects}
        for name, word in [*key, *(("ddp", trained[host]) for host in hosts if host in trained)]:
            cells[_column(name)].append(word)
        room = ink.share(min(len(ordered), _ROWS) - len(rows))
        at = place(hosts, room)
        lines = _lines(key, [by_host[host] for host in hosts], room)
        words = tuple(worst_of(cells[name]) if cells[name] else "" for name in subjects)
        worst = worst_of(word for _, word in key)
        rows.append(Row(at, len(hosts), worst, words, lines, len(key) - len(lines)))
        ink.left += room.left
    return rows, max(0, len(ordered) - _ROWS)


def _lines(key: Sequence[tuple[str, str]], alike: Sequence[Mapping[str, Check]], ink: Ink) -> tuple[Line, ...]:
    """Return the checks of machines that are alike, the worst first, as long as there is room."""
    lines = []
    for name, word in sorted(key, key=lambda one: ORDER.index(one[1])):
        if ink.left < _LINE:
            break
        ink.left -= _LINE
        observed = list(dict.fromkeys(checks[name].observed for checks in alike))
        lines.append(Line(word, name, ink(brief(observed, 1), 160)))
    return tuple(lines)


def _kinds(described: Mapping[str, Any], words: Mapping[str, str], adapters: Mapping[str, int], ink: Ink) -> list[Kind]:
    """Return the declared compute nodes as tiles, each with the word that its checks have come to."""
    kinds, left = [], _ROWS
    for item in map(mapping, listed(described.get("kinds"), 40)):
        gres = [one_line(one, NAME) for one in listed(item.get("gres"), 20)]
        gpus = sum(int(one.rpartition(":")[2]) for one in gres if re.fullmatch(r"gpu(:[^:]+)?:\d{1,3}", one))
        memory = number_in(item.get("memory"))
        parts = [f"{item['cpus']} CPUs"] if isinstance(item.get("cpus"), int) else []
        parts += [f"{memory / 1024:.0f} GiB"] if memory else []
        names = _expanded(item.get("nodes"))
        tiles = [
            Tile(one_line(name, NAME), words.get(name, "unproven"), min(gpus, 16), min(adapters.get(name, 0), 16))
            for name in names[:left]
        ]
        left -= len(tiles)
        title = " · ".join([f"{len(names)} with {', '.join(gres) or 'no GPU'}", *parts])
        kinds.append(Kind(ink(title, 200), tuple(tiles), len(names) - len(tiles)))
    return kinds


def _expanded(text: Any) -> list[str]:
    try:
        return expand(str(text)) if text else []
    except ClusterctlError:
        return []


def _compared(now: Read, record: Record, then: Record, ink: Ink) -> Comparison:
    """Return what became worse and better since another run; a check that only one of them has is counted."""
    was = {(check.host, check.id): word_of(check) for check in read_checks(then).checks}
    has = {(check.host, check.id): word_of(check) for check in now.checks}
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (host, name), word in has.items():
        # What was not there before and is bad now is worse; what is new and good is no news.
        before = was.get((host, name), "")
        if RANK[before or "pass"] != RANK[word]:
            groups[before, word, name].append(host)
    ordered = sorted(groups.items(), key=lambda one: (ORDER.index(one[0][1]), one[0][2]))
    worse, better = (
        [one for one in ordered if (RANK[one[0][1]] > RANK[one[0][0] or "pass"]) is wanted] for wanted in (True, False)
    )

    def told(moves: Sequence[tuple[tuple[str, str, str], list[str]]]) -> tuple[tuple[str, str, str], ...]:
        return tuple(
            (old, word, ink(f"{name} on {place(on, ink)}", 240)) for (old, word, name), on in moves[:_FINDINGS]
        )

    facts = [("Verdict", f"{verdict_of(then)} then, {verdict_of(record)} now")]
    new, gone = len(has.keys() - was.keys()), len(was.keys() - has.keys())
    if new or gone:
        facts.append(("Checks", f"{new} only now, {gone} only then"))
    if (slow := speed_of(then.document)) and (fast := speed_of(record.document)):
        change = f"{fast / slow - 1:+.0%}"
        facts.append(("Training", "as fast" if change in ("+0%", "-0%") else f"{change} tokens a second"))
    about = f"{ink(then.facts.get('id', 'another run'), NAME)}, {when(then.facts)}"
    return Comparison(about, told(worse), told(better), (len(worse), len(better)), tuple(facts))


def _headline(verdict: str, cluster: str, worst: Finding | None, counts: Mapping[str, int], why: str) -> str:
    """Return the verdict with its cause, in a sentence."""
    if verdict == "pass":
        return f"{cluster}: {counts['pass']} checks proven, none failed"
    if worst is None:
        return f"{cluster}: {why or 'nothing was judged'}"
    return f"{worst.where}: {worst.cause or worst.observed or worst.ids}"


def _about(worst: Finding | None, counts: Mapping[str, int], limited: str) -> str:
    told = f"{counts['pass']} checks were proven"
    told += "".join(
        f", {counts[word]} {said}"
        for word, said in (
            ("fail", "failed"),
            ("unknown", "could not be decided"),
            ("simulated", "passed on simulated hardware only"),
            ("warn", "passed with a warning"),
            ("unproven", "left a proof open"),
        )
        if counts[word]
    )
    seen = f"{worst.ids}: {worst.observed}, expected {worst.expected}. " if worst and worst.expected else ""
    return f"{seen}{told}." + (f" Only {limited} was judged; this says nothing about the rest." if limited else "")


def _notes(record: Record, read: Read, release: str, ink: Ink) -> list[str]:
    notes = []
    if record.cut:
        notes.append("Below is what the run's journal has. It is no verdict.")
    if read.unreadable:
        notes.append(f"{read.unreadable} checks of the record could not be read, and are left out.")
    wrote = ink(mapping(record.facts.get("versions")).get("clusterctl", ""), 40)
    if release and wrote and wrote != release:
        notes.append(f"clusterctl {wrote} made this record; this page is of clusterctl {release}.")
    return notes


def _machines(described: Mapping[str, Any], words: Mapping[str, str], ink: Ink) -> list[tuple[str, str, str]]:
    functions: dict[str, list[str]] = {}
    for key, function in (("controller", "controller"), ("database", "database"), ("login", "login")):
        for name in _expanded(described.get(key)):
            functions.setdefault(name, []).append(function)
    return [
        (ink(name, NAME), ", ".join(does), words.get(name, "unproven")) for name, does in list(functions.items())[:32]
    ]


def _repeat(facts: Mapping[str, Any], ink: Ink) -> list[str]:
    options = mapping(facts.get("options"))
    words = ["clusterctl", "verify" if facts.get("command") != "preflight" else "preflight"]
    words += [ink(options["inventory"])] if options.get("inventory") else []
    words += ["--limit", ink(options["limit"], 200)] if options.get("limit") else []
    run = ink(facts.get("id", ""), NAME)
    return [shlex.join(words), shlex.join(["clusterctl", "report", "--against", run])]


def _made(facts: Mapping[str, Any], ink: Ink) -> list[tuple[str, str]]:
    versions = mapping(facts.get("versions"))
    found = {
        "Command": facts.get("command"),
        "By": f"{facts.get('sudo_user') or facts.get('user', '?')} on {facts.get('host', '?')}",
        "Versions": ", ".join(f"{name} {version}" for name, version in list(versions.items())[:8]),
    }
    return [(name, ink(told, 200)) for name, told in found.items() if told]


def build(record: Record, against: Record | None = None, *, release: str = "") -> Page:
    """Return the page of a run; ``against`` is an earlier one to compare with, ``release`` this clusterctl's."""
    read, document = read_checks(record), record.document
    by_host: dict[str, list[str]] = defaultdict(list)
    for check in read.checks:
        by_host[check.host].append(word_of(check))
    words = {host: worst_of(own) for host, own in by_host.items()}
    ink = Ink(min(_INK_MOST, _INK + _INK_EACH * len(by_host)))
    described, verdict = mapping(document.get("cluster")), verdict_of(record)
    cluster = ink(described.get("name") or "", NAME)
    counts = dict.fromkeys(WORDS, 0) | Counter(map(word_of, read.checks))
    bad = [one for one in read.checks if not one.ok]
    roots = [one for one in bad if (one.host, one.id) not in read.follows]
    findings, more_findings = _findings(roots, read, ink)
    warnings, more_warnings = _findings([one for one in read.checks if one.verdict is Verdict.WARN], read, ink)
    why = ink("; ".join(map(str, listed(document.get("why"), 5))) or record.cut)
    worst = next((one for one in findings if one.word == verdict), None)
    subjects = [name for name in SUBJECTS if any(_column(check.id) == name for check in read.checks)]
    passed = Counter((_column(one.id), word_of(one)) for one in read.checks)
    adapters = {
        str(node.get("name")): int(number_in(node.get("adapters")) or 0)
        for job in map(mapping, listed(document.get("training"), 8))
        for node in map(mapping, listed(job.get("nodes"), 65_536))
    }
    partitions = [mapping(one) for one in listed(described.get("partitions"), 40)]
    comparison = _compared(read, record, against, ink) if against else None
    unproven, more_unproven = _findings([one for one in read.checks if one.unproven], read, ink)
    training = trainings(document, ink)
    proof = [one for one in read.checks if one.id.startswith("ddp.")]
    shown = [Line(word_of(one), one.id, ink(one.observed, 200)) for one in proof[:32]]
    machines, kinds = _machines(described, words, ink), _kinds(described, words, adapters, ink)
    trains = worst_of(map(word_of, proof))
    trained = {} if not proof or trains in ("fail", "unknown") else dict.fromkeys(adapters, trains)
    rows, more_rows = _rows(read.checks, subjects, trained, ink)
    return Page(
        verdict=verdict,
        headline=_headline(verdict, cluster or "the cluster", worst, counts, why),
        about=_about(
            worst, counts, place(map(str, listed(document.get("limited"))), ink) if document.get("limited") else ""
        ),
        cluster=cluster,
        run=ink(record.facts.get("id", ""), NAME),
        when=when(record.facts),
        notes=tuple(_notes(record, read, release, ink)),
        counts=counts,
        simulated=tuple(ink(one, 40) for one in listed(document.get("simulated"), 8)),
        findings=findings,
        more_findings=more_findings,
        warnings=warnings,
        more_warnings=more_warnings,
        unproven=unproven,
        more_unproven=more_unproven,
        proven=tuple(
            (name, tuple(sum(passed[name, word] for word in words) for words in _PROVEN)) for name in subjects
        ),
        subjects=tuple(subjects),
        rows=tuple(rows),
        more_rows=more_rows,
        machines=tuple(machines),
        kinds=tuple(kinds),
        partitions=tuple((ink(one.get("name", ""), NAME), ink(one.get("nodes", ""), 200)) for one in partitions),
        proof=tuple(shown),
        training=tuple(training),
        comparison=comparison,
        repeat=tuple(_repeat(record.facts, ink)),
        facts=tuple(_made(record.facts, ink)),
    )
