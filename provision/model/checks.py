"""One result model for everything that is judged: preflight, every role's proof, the cluster's jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from provision.model.consequences import Consequence, consequence_from
from provision.model.text import one_line

#: Times its limit, which a machine is given once more that has not answered all questions in time.
PATIENCE = 5


class Verdict(StrEnum):
    """How a check ended. Unknown is not a pass: what could not be measured has not been proven."""

    PASS = "pass"  # noqa: S105 - a verdict, not a secret
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIP = "skip"


#: The worst first.
WORST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.PASS, Verdict.SKIP)


class Level(StrEnum):
    """What a check speaks about."""

    HOST = "host"
    CLUSTER = "cluster"
    JOB = "job"


class Code(StrEnum):
    """What a check has seen, for those who decide by it: no decision reads the words for people."""

    ABSENT = "absent"
    PRESENT = "present"
    CONTENT = "content"
    MODE = "mode"
    MISSING = "missing"
    UNBUILT = "unbuilt"
    CONFIGURATION = "configuration"
    NEVER_RAN = "never_ran"
    SOCKETS = "sockets"
    DEVICES = "devices"
    IN_USE = "in_use"
    CORES = "cores"
    MEMORY = "memory"
    DISK = "disk"
    SILENT = "silent"
    REBOOTED = "rebooted"
    PROGRAM = "program"
    PROCESS = "process"
    ROLLED_BACK = "rolled_back"
    OTHER = "other"


@dataclass(frozen=True)
class Detail:
    """One part of what was seen; ``thing`` is the file, package, container or daemon that it is about."""

    code: Code
    thing: str = ""


@dataclass(frozen=True)
class Check:
    """One judged fact.

    ``observed`` and ``expected`` are text for people; ``source`` says where the expectation comes from; ``cause``
    and ``fix`` are empty for a pass. ``simulated`` is true where the hardware behind it was not real; ``unproven``
    marks a skip that leaves open what should be proven, against one that does not apply here. ``before`` is true for
    what is judged before anything is changed: where it fails, the machine is left out of the run, or, where ``whole``
    says that it concerns the whole cluster, the run is refused. ``consequences`` are what mending a failure brings,
    ``details`` are all parts of what was observed, in codes, from judges on whose words others decide.
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
    unproven: bool = False
    before: bool = False
    whole: bool = False
    consequences: tuple[Consequence, ...] = ()
    details: tuple[Detail, ...] = ()

    @property
    def ok(self) -> bool:
        """True unless this check stops a verdict of pass."""
        return self.verdict not in (Verdict.FAIL, Verdict.UNKNOWN)

    @property
    def never_ran(self) -> bool:
        """True for one that was owed and did not come."""
        return Detail(Code.NEVER_RAN) in self.details

    @property
    def sentence(self) -> str:
        """The check in one line, as a failed task says it."""
        parts = [f"{self.id}: {self.verdict}: observed {self.observed or 'nothing'}"]
        parts[0] += f", expected {self.expected}" if self.expected else ""
        parts[0] += f" ({self.source})" if self.source else ""
        parts += [f"{word.capitalize()}: {text}" for word, text in (("cause", self.cause), ("fix", self.fix)) if text]
        return one_line(". ".join(parts))

    @property
    def change(self) -> str:
        """What is to be mended and what that brings, in one line, as a plan tells it."""
        return "".join([f"{self.id}: {self.observed}", *(f" -> {one.sentence}" for one in self.consequences)])

    def as_dict(self) -> dict[str, Any]:
        """Return the check as plain JSON types, for a result of Ansible's."""
        plain = asdict(self)
        plain["consequences"] = [{**one, "kind": str(one["kind"])} for one in plain["consequences"]]
        plain["details"] = [{**one, "code": str(one["code"])} for one in plain["details"]]
        for key in ("before", "whole", "consequences", "details"):
            if not plain[key]:
                del plain[key]
        plain["verdict"] = str(self.verdict)
        plain["level"] = str(self.level)
        return plain

    def as_document(self) -> dict[str, Any]:
        """Return the check as the documents have it that commands print: without codes, which are ours to change."""
        return {key: value for key, value in self.as_dict().items() if key != "details"}


@dataclass(frozen=True)
class Subject:
    """What is judged together: the only builder of checks.

    ``names`` are all checks that the subject ever gives, so that one which is missing can be missed; ``fix`` is what is
    done about most of them. ``before``: they are judged before anything is changed. Those that ``whole`` names concern
    the whole cluster, whichever machine they are judged on.
    """

    name: str
    names: tuple[str, ...]
    fix: str = ""
    level: Level = Level.HOST
    before: bool = False
    whole: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all checks of this subject."""
        return tuple(f"{self.name}.{name}" for name in self.names)

    def check(
        self,
        name: str,
        verdict: Verdict | bool,
        observed: object = "",
        expected: object = "",
        *,
        host: str = "",
        source: str = "",
        cause: str = "",
        fix: str | None = None,
        level: Level | None = None,
        simulated: bool = False,
        unproven: bool = False,
        consequences: Iterable[Consequence] = (),
        details: Iterable[Detail] = (),
    ) -> Check:
        """Return one check. True and False mean pass and fail; a pass or skip has neither cause nor fix.

        ``consequences`` and ``details`` count where it fails: nothing is mended otherwise.

        Raises:
            KeyError: the subject has no check of this name, so nobody would miss it.
        """
        if name not in self.names:
            raise KeyError(f"{self.name} has no check '{name}'")
        word = (Verdict.PASS if verdict else Verdict.FAIL) if isinstance(verdict, bool) else Verdict(verdict)
        silent = word in (Verdict.PASS, Verdict.SKIP)
        return Check(
            id=f"{self.name}.{name}",
            host=host,
            verdict=word,
            level=level or self.level,
            observed=str(observed),
            expected=str(expected),
            source=source,
            cause="" if silent else cause,
            fix="" if silent else self.fix if fix is None else fix,
            simulated=simulated,
            unproven=unproven and word is Verdict.SKIP,
            before=self.before,
            whole=name in self.whole and word in (Verdict.FAIL, Verdict.UNKNOWN),
            consequences=tuple(consequences) if word is Verdict.FAIL else (),
            details=tuple(details) if word is Verdict.FAIL else (),
        )

    def skip(self, name: str, why: str, *, host: str = "", unproven: bool = False) -> Check:
        """Return a check that does not apply here, or (``unproven``) one that could not be made; ``why`` says why."""
        return self.check(name, Verdict.SKIP, why, host=host, unproven=unproven)

    def unknown(self, name: str, why: str, *, host: str = "", cause: str = "", fix: str | None = None) -> Check:
        """Return a check that could not be decided; ``why`` says what was not answered."""
        return self.check(name, Verdict.UNKNOWN, why, host=host, cause=cause, fix=fix)

    def all_unknown(self, why: str, *, host: str = "", cause: str = "", fix: str | None = None) -> list[Check]:
        """Return all checks of the subject as unknown, for a machine that did not answer its question."""
        return [self.unknown(name, why, host=host, cause=cause, fix=fix) for name in self.names]

    def all_skipped(self, why: str, *, host: str = "", unproven: bool = False) -> list[Check]:
        """Return all checks of the subject as skipped, where the subject does not apply."""
        return [self.skip(name, why, host=host, unproven=unproven) for name in self.names]


def check_from(data: Mapping[str, Any], *, host: str = "") -> Check:
    """Build a check from plain data, as a module result or a stored document holds it.

    Raises:
        ValueError: the verdict, the level, a consequence's kind or a detail's code is none of the known words.
        KeyError: ``id`` or ``verdict`` is missing.
    """
    texts = {key: str(data.get(key, "")) for key in ("observed", "expected", "source", "cause", "fix")}
    return Check(
        id=str(data["id"]),
        host=str(data.get("host") or host),
        verdict=Verdict(data["verdict"]),
        level=Level(data.get("level", Level.HOST)),
        simulated=bool(data.get("simulated", False)),
        unproven=bool(data.get("unproven", False)),
        before=bool(data.get("before", False)),
        whole=bool(data.get("whole", False)),
        consequences=tuple(map(consequence_from, data.get("consequences") or ())),
        details=tuple(Detail(Code(one["code"]), one_line(one["thing"])) for one in data.get("details") or ()),
        **texts,
    )
