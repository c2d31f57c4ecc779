"""The differences that Ansible reports for files, as unified text. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: Lines of one difference that are kept; a whole generated file is read in the file, not in a report.
MAX_LINES = 400


@dataclass(frozen=True)
class Diff:
    """What changes in one file: ``path`` as Ansible names it, ``text`` in unified form.

    Of a program that clusterctl brings along nobody reads the text: it has ``lines``, their number, in its place.
    """

    path: str
    text: str
    lines: int | None = None


def diffs_of(results: Iterable[Mapping[str, Any]]) -> Iterator[Diff]:
    """Yield the differences in a task's results (the result itself and its loop items').

    ``lines`` is of our own: the action that observes gives it, and a sentence for ``ansible-playbook`` to show.

    Ansible leaves them out for tasks with ``no_log`` or ``diff: false``; a censored result is skipped here as well.
    """
    for result in results:
        if "censored" in result or result.get("_ansible_no_log"):
            continue
        found = result.get("diff")
        for one in found if isinstance(found, list) else [found]:
            if not isinstance(one, Mapping):
                continue
            path, lines = str(one.get("after_header") or one.get("before_header") or ""), one.get("lines")
            if isinstance(lines, int):
                yield Diff(path, "", lines)
            elif text := _text(one):
                yield Diff(path, text)


def _text(one: Mapping[str, Any]) -> str:
    if one.get("prepared"):
        lines = str(one["prepared"]).splitlines()
    else:
        before, after = _lines(one.get("before")), _lines(one.get("after"))
        lines = list(
            difflib.unified_diff(
                before,
                after,
                str(one.get("before_header") or "before"),
                str(one.get("after_header") or "after"),
                lineterm="",
            )
        )
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"... {len(lines) - MAX_LINES} more lines"]
    return "\n".join(lines)


def _lines(side: Any) -> list[str]:
    if side is None:
        return []
    if isinstance(side, Mapping):
        return [f"{key}: {side[key]}" for key in sorted(side, key=str)]
    return str(side).splitlines()
