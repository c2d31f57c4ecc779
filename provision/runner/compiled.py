"""Jinja's compiled templates, kept from before the first worker on.

Ansible forks a worker for each task on each machine, and what a worker compiles ends with it: to judge one machine,
some 500 texts of the roles' data were compiled again, half a second of processor. What is compiled before the first
fork, all workers have.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

from jinja2 import Environment, TemplateError

#: What of an environment decides about the code of a text: how its marks are read, and what becomes of line ends.
_SYNTAX = (
    *("block_start_string", "block_end_string", "variable_start_string", "variable_end_string"),
    *("comment_start_string", "comment_end_string", "line_statement_prefix", "line_comment_prefix"),
    *("trim_blocks", "lstrip_blocks", "newline_sequence", "keep_trailing_newline"),
)


def keep(kind: type[Environment]) -> dict[tuple[Any, ...], CodeType]:
    """Let all environments of a kind share what each has compiled, and return where it is kept.

    Only texts without a name count, which no loader keeps. Ansible reads a backslash by the occasion, so that a text
    with one is compiled each time.
    """
    kept: dict[tuple[Any, ...], CodeType] = {}
    compile_anew = kind.compile

    @functools.wraps(compile_anew)
    def compile(self: Environment, source: Any, *words: Any, **options: Any) -> Any:
        if words or options or not isinstance(source, str) or "\\" in source:
            return compile_anew(self, source, *words, **options)
        # A text with another origin is another one: errors in it name the place.
        key = (type(source), source, *(getattr(self, name) for name in _SYNTAX))
        if key not in kept:
            kept[key] = compile_anew(self, source)
        return kept[key]

    kind.compile = compile  # type: ignore[method-assign]
    return kept


def texts(data: Any) -> Iterator[str]:
    """Return every text in nested data that is a template."""
    if isinstance(data, str):
        if "{{" in data or "{%" in data:
            yield data
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from texts(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from texts(value)


def prepare(environment: Environment, sources: Iterable[str]) -> None:
    """Compile texts now; one that is wrong says so where it is used."""
    for source in sources:
        try:
            environment.from_string(source)
        except TemplateError:
            continue
