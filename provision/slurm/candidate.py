"""A configuration in a slurmctld that is only asked whether it starts: what that gets, and what it speaks of. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

#: Lines that such a slurmctld does not get: it has no network, would wait for a database, and would run these programs
#: (slurmscriptd.c, burst_buffer*.c of 24.11). A mistake there shows when the real slurmctld is told.
_OUT = re.compile(
    r"AccountingStorage\w*|AuthType|CredType|JobComp\w*|BurstBufferType|MailProg|RebootProgram|ResumeProgram"
    r"|ResumeFailProgram|SuspendProgram|ResvProlog|ResvEpilog|PrologSlurmctld|EpilogSlurmctld|SlurmctldPrimaryO(?:n|ff)Prog",
    re.IGNORECASE,
)
#: What it gets instead: the plugin for munge ends slurmctld where munged does not answer, as before the stage munge.
_IN = ("AuthType=auth/none", "CredType=cred/none")
_OF_THE_DATABASE = re.compile(r"(?:gres|license|bb|ic)/", re.IGNORECASE)
#: Words of values that it does not get: what the database alone knows, a script that runs as soon as its plugin is
#: loaded, what leaves it without any address, and with what slurmctld 24.11.5 crashes where it has no database.
_WORDS_OUT = {
    "priorityweighttres": _OF_THE_DATABASE,
    "tresbillingweights": _OF_THE_DATABASE,
    "jobsubmitplugins": re.compile(r"(?:job_submit/)?lua$", re.IGNORECASE),
    "communicationparameters": re.compile(r"DisableIPv4$", re.IGNORECASE),
    "priorityflags": re.compile(r"NO_FAIR_TREE$", re.IGNORECASE),
}
_SETTING = re.compile(r"(?P<name>[A-Za-z]\w*)=(?P<value>\"[^\"]*\"|\S*)")
#: How Slurm names a line: "in file /etc/slurm/slurm.conf line 68".
_LINE = re.compile(r"(?:\S*/)?(?P<file>[\w.-]+\.(?:conf|yaml)) line (?P<line>[0-9]{1,6})\b")
_FILE = re.compile(r"\b[\w.-]+\.(?:conf|yaml)\b")
_WORD = re.compile(r"[\w./:%+-]*\w")
#: A number that stands in a message is seldom the value that it is about.
_NUMBER = re.compile(r"[0-9]{1,3}")
#: Of what is on a NodeName line, the inventory has variables of its own.
_OF_NODES = {
    "cpus": "node_cpus", "boards": "node_boards", "sockets": "node_sockets", "corespersocket": "node_cores_per_socket",
    "threadspercore": "node_threads_per_core", "realmemory": "node_real_memory", "memspeclimit": "node_mem_spec_limit",
    "tmpdisk": "node_tmp_disk", "gres": "node_gres", "feature": "node_features", "weight": "node_weight",
}  # fmt: skip


class Spoken(NamedTuple):
    """What Slurm speaks of: a line of a file (0: the file), and the parameter that is set there, if one is."""

    file: str
    line: int = 0
    name: str = ""
    value: str = ""


def prepared(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the files as such a slurmctld gets them. Each line keeps its number, as Slurm names lines by them."""
    own = [_line(line) for line in texts["slurm.conf"].splitlines()]
    return {**texts, "slurm.conf": "\n".join([*own, *_IN, ""])}


def _line(line: str) -> str:
    found = _SETTING.match(line)
    if found and _OUT.fullmatch(found["name"]):
        return f"# {line}"
    return _SETTING.sub(_setting, line) if found else line


def _setting(found: re.Match[str]) -> str:
    """Return a setting without the words of its value that are out; nothing of one that has no others."""
    out = _WORDS_OUT.get(found["name"].lower())
    if out is None:
        return found[0]
    words = [word for word in found["value"].strip('"').split(",") if not out.match(word)]
    return f"{found['name']}={','.join(words)}" if words else ""


def spoken_of(texts: Mapping[str, str], said: Sequence[str]) -> Spoken | None:
    """Return what the first of these lines of Slurm's that speaks of the files speaks of; None where none does."""
    settings = list(_settings(texts))
    for line in said:
        words = set(_WORD.findall(line))
        at = _LINE.search(line)
        here = [one for one in settings if not at or (one.file, one.line) == (at["file"], int(at["line"]))]
        nearest = max(here, key=lambda one: _nearness(one, words), default=None)
        if nearest and (at or any(_nearness(nearest, words))):
            return nearest
        if at and at["file"] in texts:
            return Spoken(at["file"], int(at["line"]))
    named = [file for line in said for file in _FILE.findall(line) if file in texts]
    return Spoken(named[0]) if named else None


def _nearness(one: Spoken, words: set[str]) -> tuple[int, int]:
    """Say how much a message, by its words, is about a setting: its value says more than its name, a long one most."""
    values = {one.value.strip('"'), *re.split(r"[,\s\"]", one.value)} - {""}
    name = one.name in words
    found = [len(value) for value in values & words if name or not _NUMBER.fullmatch(value)]
    return name + 2 * bool(found), max(found, default=0)


def _settings(texts: Mapping[str, str]) -> Iterator[Spoken]:
    """Yield what is set in files of Slurm's own form, slurm.conf first."""
    for file in sorted((name for name in texts if name.endswith(".conf")), key=lambda name: name != "slurm.conf"):
        for number, settings in lines(texts[file]):
            for name, value in settings:
                variable = _OF_NODES.get(name.lower(), "") if settings[0][0] == "NodeName" else ""
                yield Spoken(file, number, variable or name, value)


def lines(text: str) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Yield the lines of a file of Slurm's that set something: number, and each name with its value."""
    for number, line in enumerate(text.splitlines(), start=1):
        found = _SETTING.finditer(line)
        if not line.lstrip().startswith("#") and (settings := [(one["name"], one["value"]) for one in found]):
            yield number, settings
