"""Where in an inventory's files the mistake is that made Ansible refuse them. Its messages often do not tell."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import yaml

from provision.slurm.candidate import Spoken

_YAML = (".yml", ".yaml", ".json")

_SECTION = re.compile(r"\s*\[([^\]]+)\]")

# What YAML's reader refuses wherever it stands, comments included, and bytes that are no UTF-8.
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def where(path: Path) -> str:
    """Return ``file, line N``, or nothing where the mistake is of a kind that is not looked for.

    Looked for are characters that no text has, broken YAML, a key that is written twice, and an INI section whose
    header is not closed.
    """
    for file in _files(path):
        try:
            content = file.read_bytes()
        except OSError:
            continue
        text = content.decode(errors="surrogateescape")
        line = _unreadable(text) or (_yaml(text) if file.suffix in _YAML else _ini(text))
        if line:
            return f"{file}, line {line}"
    return ""


def written(path: Path, name: str, value: str = "", variable: str = "") -> str:
    """Return ``file, line N`` of the first place where a variable of this name is set; nothing where none is found.

    A line that is a comment sets nothing.

    With a ``value``, only where it is set to this one; with a ``variable``, only within what YAML sets that to.
    """
    whole = rf"[\"']?{re.escape(value)}(?=[\s,\"'\]}}]|$)" if value else ""
    sets = re.compile(rf"(?:^|[\s{{,\"'])({re.escape(name)})[\"']?\s*[=:]\s*{whole}", re.MULTILINE)
    for file in _files(path):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        within = _value(file, variable) if variable else None
        begin, end = (within.start_mark.index, within.end_mark.index) if within else (0, len(text))
        if variable and not within and file.suffix in _YAML:
            continue
        for found in sets.finditer(text, begin, end):
            if not text[text.rfind("\n", 0, found.start(1)) + 1 : found.start(1)].lstrip().startswith(("#", ";")):
                return f"{file}, line {text.count(chr(10), 0, found.start(1)) + 1}"
    return ""


def entry_written(path: Path, variable: str, number: int | None, key: str, row: int = 0) -> str:
    """Return ``file, line N`` of the key of an entry of a list, else of the entry, else of the list.

    Without a number that of the key of a mapping, else of the variable; in INI, where either is one line, of that. With
    a row, that line of the text that the key has, where it is written as a block, line by line.
    """
    for file in _files(path) if key or number is not None else ():
        node = _value(file, variable)
        if number is not None:
            if not isinstance(node, yaml.SequenceNode) or number >= len(node.value):
                continue
            node = node.value[number]
        elif not isinstance(node, yaml.MappingNode):
            continue
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        for name, value in pairs:
            if name.value == key:
                # The text of a block begins below its "|".
                block = row and isinstance(value, yaml.ScalarNode) and value.style == "|"
                return f"{file}, line {value.start_mark.line + 1 + row if block else name.start_mark.line + 1}"
        if number is not None:
            return f"{file}, line {node.start_mark.line + 1}"
    return written(path, variable)


def spoken_written(path: Path, spoken: Spoken, files: Collection[str]) -> str:
    """Return ``file, line N: name=value`` of what Slurm speaks of, nothing of what is not in the inventory.

    ``files`` are those whose text stands in slurm_conf_files.
    """
    if spoken.file in files:
        spot = entry_written(path, "slurm_conf_files", None, spoken.file, row=spoken.line)
        return f"{spot}: {spoken.file}" if spot else ""
    if not spoken.name:
        return ""
    spot = written(path, spoken.name, spoken.value) or written(path, spoken.name)
    return f"{spot}: {spoken.name}={spoken.value}" if spot else ""


def member_written(path: Path, group: str, host: str) -> str:
    """Return ``file, line N`` where a host, or the range of hosts that it is in, is first put into a group."""
    for file in _files(path, ()):
        if file.suffix in _YAML:
            value = _value(file, group)
            marks = [value.start_mark.line + 1] if value else []
            pairs = value.value if isinstance(value, yaml.MappingNode) else []
            listed = [hosts for name, hosts in pairs if name.value == "hosts" and isinstance(hosts, yaml.MappingNode)]
            marks += [name.start_mark.line + 1 for hosts in listed for name, _ in hosts.value if name.value == host]
        else:
            marks, lines = [], file.read_text(encoding="utf-8", errors="replace").splitlines()
            for number, (header, line) in enumerate(sections(lines), start=1):
                if header not in (group, f"{group}:children"):
                    continue
                if _SECTION.match(line):
                    marks.append(number)
                elif line.split()[:1] == [host]:
                    marks.append(number)
                    break
        if marks:
            return f"{file}, line {marks[-1]}"
    return ""


def _value(file: Path, variable: str) -> yaml.Node | None:
    """Return what a file of YAML sets a variable to, at its top or in a group's ``vars``."""
    if file.suffix not in _YAML:
        return None
    try:
        waiting: list[yaml.Node | None] = [yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)]
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None
    while waiting:
        node = waiting.pop()
        pairs: list[tuple[yaml.Node, yaml.Node]] = node.value if isinstance(node, yaml.MappingNode) else []
        for name, value in pairs:
            if name.value == variable:
                return value
            waiting.append(value)
    return None


def sections(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each line of an INI inventory after the section that it is in; a header is in its own."""
    header = ""
    for line in lines:
        if section := _SECTION.match(line):
            header = section.group(1).strip()
        yield header, line


def counted_by_sixty(path: Path, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield place and text of each value below these variables that YAML reads as a number to the base of sixty.

    ``MaxTime: 1:30:00`` is 5400 to YAML 1.1, and so 5400 minutes to Slurm.
    """
    # What is said for the whole cluster is in no machine's own file, of which there may be thousands.
    for file in _files(path, ("group_vars",)):
        if file.suffix not in _YAML:
            continue
        try:
            root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        except (OSError, ValueError, yaml.YAMLError, RecursionError):
            continue
        pairs = root.value if isinstance(root, yaml.MappingNode) else []
        waiting = [value for key, value in reversed(pairs) if key.value in names]
        while waiting:
            node = waiting.pop()
            if isinstance(node, yaml.MappingNode):
                waiting.extend(value for _, value in reversed(node.value))
            elif isinstance(node, yaml.SequenceNode):
                waiting.extend(reversed(node.value))
            elif node.tag == "tag:yaml.org,2002:int" and ":" in node.value:
                yield f"{file}, line {node.start_mark.line + 1}", node.value


def _files(path: Path, folders: Collection[str] = ("group_vars", "host_vars")) -> Iterator[Path]:
    """Yield the inventory's files and those with the variables beside it."""
    home = path if path.is_dir() else path.parent
    if path.is_file():
        yield path
    elif path.is_dir():
        yield from sorted(file for file in path.iterdir() if file.is_file())
    for folder in folders:
        yield from sorted(file for file in (home / folder).rglob("*") if file.is_file())


def _unreadable(text: str) -> int:
    found = _NO_TEXT.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else 0


def _ini(text: str) -> int:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("[") and "]" not in line:
            return number
    return 0


def _yaml(text: str) -> int:
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return mark.line + 1 if mark else 0
    except (yaml.YAMLError, RecursionError):
        return 0
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        if isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                if key.value in seen:
                    return int(key.start_mark.line) + 1
                if isinstance(key, yaml.ScalarNode):
                    seen.add(key.value)
                waiting.append(value)
    return 0
