"""What a program on a machine answered within its limit. Pure, and nothing of it is trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

#: How timeout(1) ends: the program was ended at its limit, was killed because it did not heed that, or is not there.
_ENDED, _KILLED, _ABSENT = 124, 137, 127

#: Characters of an answer that are read; the longest honest one (Slurm's nodes in JSON) has some 4 KiB a machine.
MAX_TEXT = 50_000_000


def mapping(value: object) -> Mapping[str, Any]:
    """Return what should be a mapping; an empty one where it is something else."""
    return value if isinstance(value, Mapping) else {}


@dataclass(frozen=True)
class Answer:
    """The result of ``timeout SECONDS PROGRAM ...``, as Ansible's ``command`` returns it.

    ``limit`` is in seconds. ``rc`` is None where the program was not run at all; ``said`` is why, in Ansible's words.
    """

    limit: int
    rc: int | None = None
    stdout: str = ""
    stderr: str = ""
    said: str = ""

    @classmethod
    def from_result(cls, result: object, limit: int) -> Self:
        """Read a registered result, whatever it is."""
        given = mapping(result)
        rc = given.get("rc")
        return cls(
            limit=limit,
            rc=rc if isinstance(rc, int) and not isinstance(rc, bool) else None,
            stdout=_text(given.get("stdout")),
            stderr=_text(given.get("stderr")),
            said=_text(given.get("msg")),
        )

    @property
    def late(self) -> bool:
        """True where the program had not answered when its limit was reached."""
        return self.rc in (_ENDED, _KILLED)

    @property
    def problem(self) -> str:
        """Say why there is no answer; empty where the program ended by itself with 0."""
        if self.late:
            return f"did not answer in {self.limit} s"
        if self.rc == 0:
            return ""
        lines = (self.stderr.strip() or self.said.strip()).splitlines()
        ended = "is not installed" if self.rc == _ABSENT else f"ended with {self.rc}"
        return lines[-1] if lines else "was not asked" if self.rc is None else ended

    def document(self) -> Any:
        """Return the output as JSON; None where it is none."""
        try:
            return json.loads(self.stdout)
        except (ValueError, RecursionError):
            return None


def _text(value: object) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""
