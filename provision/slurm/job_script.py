"""A user's job script as the rules ask of it: read from shfmt's syntax tree, and never run.

Which shell expands a ``$`` matters most, so a word's text has three marks: ``$`` is expanded by the shell that runs the
command, `EARLY` was expanded by another one before, `LATE` is left as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

#: A node of the tree that ``shfmt --to-json`` prints. "Op" is a number in old releases: the text at "OpPos" is read.
Node = Mapping[str, Any]
#: What makes a tree of a text; it raises `UnreadableError`.
Parse = Callable[[str], Node]

EARLY, LATE = "\ue001", "\ue002"
#: What a shell expands early, and no rule asks about; of variables that hold variables, how many are followed.
_SOMETHING, _DEPTH = f"{EARLY}_", 8
#: A text with variables in it that is longer stays as it stands; shells within shells, and texts handed to shells.
_LONGEST, _NESTED, _HANDED = 16_000, 6, 100

_SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh"))
#: Programs that start the program behind their own words.
_RUNNERS = frozenset({
    "env", "exec", "time", "timeout", "nice", "ionice", "numactl", "nohup", "stdbuf", "taskset", "nsys", "ncu", "sudo",
    "apptainer", "singularity", "docker", "podman", "enroot", "command", "setsid",
})  # fmt: skip
_DISTRIBUTED = ("torch.distributed.run", "torch.distributed.launch")

#: Short options of sbatch and srun by their long names: src/common/slurm_opt.c of Slurm 24.11.
_SHORT = {
    "A": "account", "a": "array", "c": "cpus-per-task", "C": "constraint", "d": "dependency", "D": "chdir",
    "e": "error", "G": "gpus", "J": "job-name", "K": "kill-on-bad-exit", "L": "licenses", "m": "distribution",
    "N": "nodes", "n": "ntasks", "o": "output", "p": "partition", "q": "qos", "t": "time", "w": "nodelist",
    "x": "exclude", "tasks-per-node": "ntasks-per-node",
}  # fmt: skip
#: Options of programs that take no word of their own: of sbatch and srun (there), torchrun, accelerate, deepspeed.
_SLURM_BARE = frozenset({
    "bcast", "compress", "contiguous", "disable-status", "exact", "exclusive", "external-launcher", "get-user-env",
    "hold", "immediate", "interactive", "kill-on-bad-exit", "label", "multi-prog", "nice", "no-allocate", "no-kill",
    "no-requeue", "overcommit", "overlap", "oversubscribe", "parsable", "preserve-env", "propagate", "pty", "quiet",
    "quit-on-interrupt", "reboot", "requeue", "resv-ports", "send-libs", "spread-job", "stepmgr", "test-only",
    "unbuffered", "use-min-nodes", "verbose", "wait", "x11", "container-mount-home", "no-container-mount-home",
    "container-remap-root", "no-container-remap-root", "container-writable", "container-readonly", "ignore-pbs",
    "no-container-entrypoint", "W", "K", "l", "X", "E", "Q", "u", "v", "O", "s", "H", "k", "Z", "I",
})  # fmt: skip
_BARE = {
    "srun": _SLURM_BARE - {"wait", "W"},
    "torchrun": frozenset({"standalone", "no-python", "run-path", "module", "m"}),
    "accelerate": frozenset({
        "multi-gpu", "cpu", "use-deepspeed", "use-fsdp", "module", "m", "no-python", "quiet", "q", "same-network",
        "debug", "tpu", "ipex", "use-megatron-lm",
    }),
    "deepspeed": frozenset({"no-ssh", "no-ssh-check", "force-multi", "module", "no-python", "no-local-rank"}),
    "python": frozenset[str](), "mpirun": frozenset[str](), "scontrol": frozenset[str](),
}  # fmt: skip
_NAMES = {"python3": "python", "mpiexec": "mpirun", "horovodrun": "mpirun", "accelerate-launch": "accelerate"}


class UnreadableError(Exception):
    """A script that shfmt cannot read: in which line, and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line, self.why = line, why


@dataclass(frozen=True)
class Word:
    """A word without its quotes; ``handed`` is what a shell reads that is given it."""

    text: str
    line: int
    handed: str = ""


@dataclass(frozen=True, eq=False)
class Start:
    """A program that the script starts: its options by their long names, with "-" for "_", and the words behind them.

    ``step`` is the srun that starts it. ``vague``: there may be options in a variable that the script does not know.
    """

    program: str
    command: Command
    options: Mapping[str, Word]
    rest: tuple[Word, ...]
    step: Start | None
    vague: bool


@dataclass(frozen=True, eq=False)
class Command:
    """A command: its words, what it assigns, and what surrounds it.

    ``outer`` is the command that hands it to another shell, and ``step`` the srun in which that shell runs.
    ``captured``: a substitution or a pipe has its output. ``exports``: it is export, or declare -x.
    """

    words: tuple[Word, ...]
    assigns: tuple[tuple[str, Word], ...]
    line: int
    exports: bool = False
    background: bool = False
    piped: bool = False
    captured: bool = False
    looped: bool = False
    outer: Command | None = None
    step: Start | None = None
    document: Word | None = None

    @property
    def program(self) -> str:
        """The name of the program; nothing where it only assigns."""
        return base(self.words[0].text) if self.words else ""


def base(path: str) -> str:
    """Return a path's last part."""
    return path.rpartition("/")[2]


def options(words: tuple[Word, ...], bare: frozenset[str]) -> tuple[dict[str, Word], tuple[Word, ...]]:
    """Return the options at the beginning of some words, and the words behind them; ``bare`` have none of their own."""
    found: dict[str, Word] = {}
    at = 0
    while at < len(words) and words[at].text.startswith("-") and words[at].text not in ("-", "--"):
        name, has, value = words[at].text.partition("=")
        line = words[at].line
        if not name.startswith("--") and len(name) > 2 and name[1:] not in bare:
            name, has, value = name[:2], "=", words[at].text[2:]
        key = name.lstrip("-").replace("_", "-")
        at += 1
        if not has and key not in bare and at < len(words) and not words[at].text.startswith("--"):
            value = words[at].text
            at += 1
        found[_SHORT.get(key, key)] = Word(value, line)
    return found, words[at + 1 :] if at < len(words) and words[at].text == "--" else words[at:]


@dataclass(frozen=True)
class Directive:
    """A line that sbatch reads, or that looks so: its words, and why sbatch does not read it."""

    line: int
    words: tuple[Word, ...]
    unread: str = ""

    @property
    def stray(self) -> str:
        """The words that belong to no option: sbatch reads nothing behind them."""
        left = " ".join(word.text for word in options(self.words, _SLURM_BARE)[1])
        return "" if left in ("hetjob", "packjob") else left


class Script:
    """A job script: what sbatch reads of it, its commands in their order, and the programs that they start."""

    def __init__(self, text: str, parse: Parse) -> None:
        self.text = text
        self.unreadable: UnreadableError | None = None
        self.commands: tuple[Command, ...] = ()
        self.starts: tuple[Start, ...] = ()
        tree: Node = {}
        try:
            tree = parse(text)
            shell = _Shell(text, tree, parse)
            self.commands, self.starts = tuple(shell.commands(tree, Command((), (), 0))), tuple(shell.starts)
        except UnreadableError as error:
            self.unreadable = error
        except RecursionError:
            self.unreadable = UnreadableError(1, "commands stand in one another deeper than anybody writes")
        self.directives = tuple(_directives(text, tree))

    @cached_property
    def asked(self) -> Mapping[str, Word]:
        """What the job asks for; nothing where parts of it ask for different things (hetjob)."""
        read = [one for one in self.directives if not one.unread]
        if any(word.text in ("hetjob", "packjob") for one in read for word in one.words):
            return {}
        return {name: value for one in read for name, value in options(one.words, _SLURM_BARE)[0].items()}

    @property
    def batch(self) -> bool:
        """Whether sbatch is what runs it, and not srun on each node."""
        return any(not one.unread for one in self.directives)

    @cached_property
    def exported(self) -> frozenset[str]:
        """The variables of the batch script that its programs see."""
        shell = [one for one in self.commands if one.outer is None]
        every = any(one.program == "set" and {"-a", "allexport"} & {word.text for word in one.words} for one in shell)
        return frozenset(name for one in shell if one.exports or every for name, _ in one.assigns)

    def named(self, *programs: str) -> Iterator[Start]:
        """Yield the starts of some programs."""
        return (start for start in self.starts if start.program in programs)

    def assigned(self, *names: str) -> Iterator[tuple[Command, Word]]:
        """Yield each assignment to one of some variables: its command and its value."""
        for command in self.commands:
            yield from ((command, value) for name, value in command.assigns if name in names)


def _directives(text: str, tree: Node) -> Iterator[Directive]:
    """Yield what looks like sbatch's options: comments, for a here-document may write another script's."""
    lines = text.split("\n")
    first = next((at for at, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")), len(lines) + 1)
    begun = min((node["Pos"]["Line"] for node in tree.get("Stmts", ())), default=first)
    comments = {node["Hash"]["Line"] for node in _nodes(tree) if "Hash" in node}
    for number, line in enumerate(lines, 1):
        found = re.match(r"(\s*)#(SBATCH)(\s*)(.*)", line, re.IGNORECASE)
        if found is None or not (number < first or number in comments):
            continue
        given = re.sub(r"(^|\s)#.*", "", found[4])
        words = tuple(
            Word(re.sub("[\"']", "", one), number) for one in re.findall(r"(?:\"[^\"]*\"|'[^']*'|\S)+", given)
        )
        exact = found[2] == "SBATCH" and not found[1]
        if exact and number < first:
            yield Directive(number, words)
        elif given.startswith("-"):
            spelt = "it does not begin with #SBATCH" if number < begun else ""
            yield Directive(number, words, spelt or f"a command stands before it, in line {begun}")


def _nodes(node: Any) -> Iterator[Node]:
    if isinstance(node, list):
        for one in node:
            yield from _nodes(one)
    elif isinstance(node, Mapping):
        yield node
        for one in node.values():
            yield from _nodes(one)


class _Shell:
    """A text that one shell reads, with the shells that it hands texts to."""

    def __init__(self, text: str, tree: Node, parse: Parse, outer: _Shell | None = None, line: int = 1) -> None:
        self._bytes, self._parse, self._line = text.encode(), parse, line
        self._depth: int = outer._depth + 1 if outer else 0
        self.starts: list[Start] = outer.starts if outer else []
        self._written: dict[str, Word] = outer._written if outer else {}
        self._left: list[int] = outer._left if outer else [_HANDED]
        self._values = self._assignments(tree)
        self._known: dict[tuple[str, int], tuple[Word, ...]] = {}

    def _assignments(self, tree: Node) -> dict[str, tuple[Node, ...]]:
        """Return what each variable holds, as words; only those of which the script leaves no doubt."""
        found: dict[str, list[Node]] = {}
        for node in _nodes(tree):
            if node.get("Type") == "WordIter":
                found.setdefault(node["Name"]["Value"], []).extend(({}, {}))
            args = node.get("Args", ()) if node.get("Type") == "DeclClause" else ()
            alone = node.get("Assigns", ()) if node.get("Type") == "CallExpr" and not node.get("Args") else ()
            for one in (*args, *alone):
                if "Name" in one and not one.get("Naked"):
                    found.setdefault(one["Name"]["Value"], []).append(one)
        known = {name: told for name, told in found.items() if all(one.get("Append") for one in told[1:])}
        return {name: tuple(told) for name, told in known.items() if not told[0].get("Index")}

    # -- words

    def _words_of(self, name: str, depth: int) -> tuple[Word, ...] | None:
        """Return the words that a variable holds, None where the script does not say it."""
        if depth <= 0 or name not in self._values:
            return None
        if (name, depth) not in self._known:
            held = (node for one in self._values[name] for node in _held(one))
            self._known[name, depth] = tuple(self._word(node, depth - 1) for node in held)
        return self._known[name, depth]

    def _word(self, node: Node, depth: int = _DEPTH) -> Word:
        parts = node.get("Parts", ())
        line = self._line + node["Pos"]["Line"] - 1 if "Pos" in node else self._line
        text = self._text(parts, depth, quoted=False, handed=False)
        return Word(text, line, self._text(parts, depth, quoted=False, handed=True))

    def _text(self, parts: Iterable[Node], depth: int, *, quoted: bool, handed: bool) -> str:
        found = []
        late = "$" if handed else LATE
        for part in parts:
            kind = part["Type"]
            if kind == "Lit":
                special = r"\\([$`\"\\\n])" if quoted else r"\\(.|\n)"
                found.append(re.sub(special, lambda one: one[1].strip("\n"), part["Value"]).replace("$", late))
            elif kind == "SglQuoted":
                found.append(part.get("Value", "").replace("$", late))
            elif kind == "DblQuoted":
                found.append(self._text(part.get("Parts", ()), depth, quoted=True, handed=handed))
            elif kind == "ParamExp" and (name := _plain(part)):
                held = self._words_of(name, depth)
                unknown = f"{EARLY if handed else '$'}{name}"
                found.append(unknown if held is None else " ".join(one.handed if handed else one.text for one in held))
            elif handed:
                found.append(_SOMETHING)
            else:
                found.append(self._bytes[part["Pos"]["Offset"] : part["End"]["Offset"]].decode(errors="replace"))
        text = "".join(found)
        return text if len(text) < _LONGEST else _SOMETHING

    def _split(self, node: Node) -> tuple[Word, ...]:
        """Return a word of a command as the words that it becomes: a variable may hold several."""
        parts = node.get("Parts", ())
        quoted = len(parts) == 1 and parts[0]["Type"] == "DblQuoted"
        inner = parts[0].get("Parts", ()) if quoted else parts
        name = _plain(inner[0]) if len(inner) == 1 and inner[0]["Type"] == "ParamExp" else ""
        held = self._words_of(name, _DEPTH) if name else None
        if held is None or (quoted and "Index" not in inner[0]):
            return (self._word(node),)
        line = self._line + node["Pos"]["Line"] - 1
        if quoted:
            return tuple(replace(word, line=line) for word in held)
        return tuple(Word(one, line, one) for word in held for one in word.text.split())

    # -- commands

    def commands(self, node: Any, around: Command) -> Iterator[Command]:
        """Yield a node's commands, each followed by those that it hands to another shell; `starts` gets the programs.

        ``around`` says what surrounds them.
        """
        if isinstance(node, list):
            for one in node:
                yield from self.commands(one, around)
        if not isinstance(node, Mapping):
            return
        kind = node.get("Type")
        if "Background" in node:
            around = replace(around, background=True)
        if kind == "CmdSubst":
            around = replace(around, captured=True, background=False)
        elif kind in ("ForClause", "WhileClause"):
            around = replace(around, looped=True)
        if kind == "BinaryCmd":
            at = node["OpPos"]["Offset"]
            pipe = self._bytes[at : at + 1] == b"|" and self._bytes[at : at + 2] != b"||"
            yield from self.commands(node["X"], replace(around, piped=True) if pipe else around)
            yield from self.commands(node["Y"], around)
            return
        if node.get("Cmd", {}).get("Type") in ("CallExpr", "DeclClause"):
            yield from self._command(node, around)
        for name, one in node.items():
            if name not in ("Pos", "End"):
                yield from self.commands(one, around)

    def _command(self, statement: Node, around: Command) -> Iterator[Command]:
        node = statement["Cmd"]
        line = self._line + node["Pos"]["Line"] - 1
        declares = node["Type"] == "DeclClause"
        given = (node.get("Args", ()) if declares else node.get("Assigns")) or ()
        assigns = tuple((one["Name"]["Value"], self._value(one)) for one in given if "Name" in one)
        args = () if declares else node.get("Args", ())
        words = tuple(word for arg in args for word in self._split(arg))
        document, file = self._document(statement)
        if words and words[0].text == "tee":
            file = next((base(one.text) for one in words[1:] if one.text[:1] != "-"), "")
        if document and file:
            self._written[file] = document
        exports = declares and _exports(node)
        command = replace(around, words=words, assigns=assigns, line=line, exports=exports, document=document)
        yield command
        yield from self._start(command)

    def _value(self, assign: Node) -> Word:
        text = " ".join(self._word(node).text for node in _held(assign))
        return Word(text, self._line + assign["Pos"]["Line"] - 1)

    def _document(self, statement: Node) -> tuple[Word | None, str]:
        """Return the here-document that a command reads, and the file to which it writes."""
        document, file = None, ""
        for one in statement.get("Redirs", ()):
            if hdoc := one.get("Hdoc"):
                line = self._line + hdoc["Pos"]["Line"] - 1
                raw = any(part["Type"] != "Lit" for part in one["Word"]["Parts"])
                text = self._bytes[hdoc["Pos"]["Offset"] : hdoc["End"]["Offset"]].decode(errors="replace")
                handed = text if raw else self._text(hdoc["Parts"], _DEPTH, quoted=True, handed=True)
                document = Word(text, line, handed)
            elif self._bytes[one["OpPos"]["Offset"] :][:1] == b">" and not one.get("N"):
                file = base(self._word(one["Word"]).text)
        return document, file

    # -- programs

    def _start(self, command: Command) -> Iterator[Command]:
        """Note which programs a command starts, and yield the commands of the shells among them."""
        if command.program == "eval":
            text = " ".join(word.text for word in command.words[1:]).replace(LATE, "$")
            yield from self._hand(Word("", command.line, text), command, same=True)
        step = command.step
        words = self._program(command.words)
        while words:
            name = _NAMES.get(base(words[0].text), base(words[0].text))
            if name in _BARE:
                start = _started(name, words[1:], command, step)
                self.starts.append(start)
                step = start if name == "srun" else step
                words = self._program(start.rest) if name == "srun" else ()
                continue
            script = self._script(words[1:], command.document) if name in _SHELLS else self._written[name]
            if script:
                yield from self._hand(script, replace(command, step=step))
            return

    def _program(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the words from the first program on that is of interest: the first word, or behind such as env."""
        for at, word in enumerate(words):
            name = base(word.text)
            if name in _SHELLS or _NAMES.get(name, name) in _BARE or name in self._written:
                return words[at:]
            if base(words[0].text) not in _RUNNERS:
                break
        return ()

    def _script(self, words: tuple[Word, ...], document: Word | None) -> Word | None:
        """Return what a shell reads that is started with these words, None where that is not in the script."""
        for at, word in enumerate(words):
            if re.fullmatch(r"-[a-z]*c[a-z]*", word.text):
                return words[at + 1] if at + 1 < len(words) else None
            if word.text[:1] not in ("-", "+") and (at == 0 or words[at - 1].text[1:] != "o"):
                return self._written.get(base(word.text))
        return document

    def _hand(self, word: Word, command: Command, *, same: bool = False) -> Iterator[Command]:
        """Yield the commands of a text that is handed to another shell; nothing where it cannot be read."""
        if self._depth >= _NESTED or not self._left[0]:
            return
        self._left[0] -= 1
        try:
            tree = self._parse(word.handed)
        except UnreadableError:
            return
        inner = _Shell(word.handed, tree, self._parse, self, word.line)
        around = replace(command, words=(), assigns=(), document=None, piped=False)
        yield from inner.commands(tree, around if same else replace(around, outer=command, looped=False))


def _started(name: str, words: tuple[Word, ...], command: Command, step: Start | None) -> Start:
    """Return a program with its options; python -m torch.distributed.run is torchrun."""
    if name == "accelerate" and words and words[0].text == "launch":
        words = words[1:]
    if name == "python":
        for at, word in enumerate(words[:-1]):
            if word.text == "-m" and words[at + 1].text in _DISTRIBUTED:
                return _started("torchrun", words[at + 2 :], command, step)
            if not word.text.startswith("-"):
                break
    found, rest = options(words, _BARE[name])
    vague = bool(rest) and re.fullmatch(r"\$(\w+|\{.*\})", rest[0].text) is not None
    return Start(name, command, found, rest, step, vague)


def _plain(part: Node) -> str:
    """Return the name of a variable whose value is put in as it is; nothing for other expansions."""
    index = part.get("Index") or {"Parts": [{"Value": "@"}]}
    whole = index.get("Parts", [{}])[0].get("Value") in ("@", "*")
    return str(part["Param"]["Value"]) if whole and part.keys() <= _PLAIN else ""


_PLAIN = {"Type", "Pos", "End", "Dollar", "Short", "Rbrace", "Param", "Index"}


def _exports(node: Node) -> bool:
    """Tell whether a declaration exports what it names."""
    flags = [
        one["Value"]["Parts"][0].get("Value", "") for one in node["Args"] if one.get("Naked") and "Name" not in one
    ]
    variant = node["Variant"]["Value"]
    return (variant == "export" and "-n" not in flags) or any("x" in flag for flag in flags if flag[:1] == "-")


def _held(assign: Node) -> Iterator[Node]:
    """Yield the words that an assignment gives."""
    if "Array" in assign:
        yield from (one["Value"] for one in assign["Array"].get("Elems") or () if one.get("Value"))
    elif assign.get("Value"):
        yield assign["Value"]
