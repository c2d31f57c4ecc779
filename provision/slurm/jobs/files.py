"""Mistakes of the files that a job makes for itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.slurm.jobs.finding import Told
from provision.slurm.jobs.script import Script
from provision.slurm.jobs.words import BETWEEN, EARLY, LATE, Command, base

_MARK = rf"[${EARLY}{BETWEEN}{LATE}]"
#: Variables and answers that are the same in two jobs that a user submits.
_SAME = re.compile(
    rf"{_MARK}(?P<open>\{{)?(HOME|USER|LOGNAME|SLURM_SUBMIT_DIR|SCRATCH|WORK|PROJECT|HOSTNAME|HOST|SLURMD_NODENAME"
    r"|SLURM_JOB_(NAME|PARTITION|USER|ACCOUNT|NUM_NODES)|SLURM_(CLUSTER_NAME|NNODES|NTASKS|NPROCS|NTASKS_PER_NODE)"
    r"|SLURM_(GPUS_ON_NODE|CPUS_PER_TASK|PROCID|NODEID|LOCALID))(?(open)(:?[-=][^{}]*)?\}|(?!\w))"
    rf"|{_MARK}\(\s*(whoami|id -un|hostname)\b[^$()]*\)"
)
#: Where the shell is: another place after a cd.
_HERE = re.compile(rf"{_MARK}(PWD\b|OLDPWD\b|\{{(OLD)?PWD\}}|\(\s*pwd\s*\))")
_NAMED = re.compile(rf"{_MARK}(?:(\w+)|\{{(\w+)(?::?[-=]([^{{}}]*))?\}})")
_ABSOLUTE = re.compile(rf"/|~|{_MARK}\{{?(HOME|SCRATCH|WORK|PROJECT|SLURM_SUBMIT_DIR)\b")
#: Directories of one machine, and of one job where the site has job_container/tmpfs.
_OF_A_MACHINE = re.compile(r"/(tmp|dev|var/tmp|proc|run)(/|$)")
#: Variables within variables, as far as they are followed.
_DEEPEST = 20


def shared_file(script: Script) -> Iterator[Told]:
    """A file that each job writes under the same name, where all of them see it."""
    told = set()
    names = _Names(script)
    places = _Places(script, names)
    before: Command | None = None
    for command in script.commands:
        heard = command.document or (before.document if before and before.piped else None)
        before = command
        places.follow(command)
        hosts = any("SLURM_JOB_NODELIST" in word or "SLURM_NODELIST" in word for word in command.texts)
        asks = hosts and "scontrol" in command.texts
        tee = command.texts[1:] if command.texts[:1] == ("tee",) else ()
        for file in (*command.files, *(word for word in tee if not word.startswith("-"))):
            name = script.value(file)
            made = _generated(command, name, written=heard is not None, asks=asks)
            if name in told or _OF_A_MACHINE.match(name) or not made:
                continue
            if names.same(file) and (_ABSOLUTE.match(name) or places.same(command)):
                told.add(name)
                yield (
                    command.line,
                    f"{name} has the same name in every job",
                    "two jobs in one directory write over each other's, and run with it",
                    f"{_with_id(name)}, or below a directory of the job's own",
                )


class _Names:
    """Which names are the same in every job: what a variable from elsewhere holds, nobody knows."""

    def __init__(self, script: Script) -> None:
        self._texts: dict[str, list[str]] = {}
        for word in script.assignments:
            name, _, value = word.text.partition("=")
            self._texts.setdefault(name.rstrip("+"), []).extend((value, *(one.text for one in word.items)))
        self._known: dict[str, bool] = {}
        moves = [word for one in script.commands if one.texts[:1] in _MOVES for word in one.texts[1:]]
        self._moves = not all(self.same(word) for word in moves)
        self._known = {}

    _moves = False

    def same(self, text: str, depth: int = _DEEPEST) -> bool:
        """Tell whether nothing in a text can be a job's own."""

        def put(found: re.Match[str]) -> str:
            name, default = found[1] or found[2], found[3]
            same = self._variable(name, depth - 1) if name in self._texts else default is not None
            return "" if same and (default is None or self.same(default, depth - 1)) else found[0]

        rest = _SAME.sub("", text if self._moves else _HERE.sub("", text))
        return depth > 0 and not re.search(rf"{_MARK}|%", _NAMED.sub(put, rest))

    def _variable(self, name: str, depth: int) -> bool:
        if name not in self._known:
            self._known[name] = True  # as far as it is made of itself
            self._known[name] = all(self.same(text, depth) for text in self._texts[name])
        return self._known[name]


_MOVES = (("cd",), ("pushd",))


class _Places:
    """Where each shell is, by what it has said so far."""

    def __init__(self, script: Script, names: _Names) -> None:
        self._script, self._names = script, names
        self._same: dict[int, bool] = {}

    def follow(self, command: Command) -> None:
        """Go where a command goes."""
        if command.texts[:1] in _MOVES and len(command.texts) > 1:
            to = command.texts[-1]
            path = self._script.value(to)
            same = self._names.same(to) and not _OF_A_MACHINE.match(path) and to != "-"
            self._same[id(command.outer)] = same and (bool(_ABSOLUTE.match(path)) or self.same(command))

    def same(self, command: Command) -> bool:
        """Tell whether a command is run where those of another job are."""
        outer: Command | None = command
        while outer is not None:
            outer = outer.outer
            if id(outer) in self._same:
                return self._same[id(outer)]
        return True


def _with_id(name: str) -> str:
    directory, slash, file = name.rpartition("/")
    stem, dot, ending = file.partition(".")
    return f"{directory}{slash}{stem}-$SLURM_JOB_ID{dot}{ending}"


def _generated(command: Command, name: str, *, written: bool, asks: bool) -> bool:
    """Tell whether a job makes a file for itself to run with: a list of hosts, a script, a configuration."""
    by, file = base(command.texts[0]) if command.texts else "", base(re.sub(rf"{_MARK}[{{(]?\w+[)}}]?", "", name))
    if file.endswith((".log", ".out", ".err", ".csv")):
        return False
    if written and by in ("", "cat", "tee", "sed", "envsubst"):
        return True
    if by in ("echo", "printf", "jq", "yq", "sed", "envsubst") and re.search(r"conf|\.(sh|ya?ml)$", file, re.I):
        return True
    return re.search(r"host|node|machine", file, re.I) is not None or asks
