"""One result model for everything that is judged: preflight, every role's proof, the cluster's jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """How a check ended. Unknown is not a pass: what could not be measured has not been proven."""

    PASS = "pass"  # noqa: S105 - a verdict, not a secret
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIP = "skip"


class Level(StrEnum):
    """What a check speaks about."""

    HOST = "host"
    CLUSTER = "cluster"
    JOB = "job"


@dataclass(frozen=True)
class Check:
    """One judged fact.

    ``observed`` and ``expected`` are text for people; ``source`` says where the expectation comes from; ``cause``
    and ``fix`` are empty for a pass. ``simulated`` is true where the hardware behind it was not real.
    """

    id: str
    host: str
    verdict: Verdict
    level: Level = Level.HOST
    observed: str = ""
    expected: str = ""
    source: str = ""
    cause: str = ""
    fix: str = ""
    simulated: bool = False

    @property
    def ok(self) -> bool:
        """True unless this check stops a verdict of pass."""
        return self.verdict not in (Verdict.FAIL, Verdict.UNKNOWN)

    def as_dict(self) -> dict[str, Any]:
        """Return the check as plain JSON types, keys as in the documents that commands print."""
        plain = asdict(self)
        plain["verdict"] = str(self.verdict)
        plain["level"] = str(self.level)
        return plain


def check_from(data: Mapping[str, Any], *, host: str = "") -> Check:
    """Build a check from plain data, as a module result or a stored document holds it.

    Raises:
        ValueError: the verdict or level is none of the known words.
        KeyError: ``id`` or ``verdict`` is missing.
    """
    texts = {key: str(data.get(key, "")) for key in ("observed", "expected", "source", "cause", "fix")}
    return Check(
        id=str(data["id"]),
        host=str(data.get("host") or host),
        verdict=Verdict(data["verdict"]),
        level=Level(data.get("level", Level.HOST)),
        simulated=bool(data.get("simulated", False)),
        **texts,
    )


def overall(checks: Iterable[Check]) -> Verdict:
    """Return the verdict of all checks together: fail over unknown over pass; nothing checked is unknown."""
    verdicts = {check.verdict for check in checks}
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    if Verdict.UNKNOWN in verdicts or not verdicts - {Verdict.SKIP}:
        return Verdict.UNKNOWN
    return Verdict.PASS
