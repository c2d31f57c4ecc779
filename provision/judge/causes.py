"""Cause before consequence: which checks could not be made because of which others. Pure.

A table says what a subject rests on. Only what was not decided is put below a check that did not pass; a check that
failed has evidence of its own and stands for itself, but for one that says of another machine that it is silent.
Nothing is claimed beyond the table: below a root stands "not decided".

To a verdict a failure stays one. What is to be *mended* may be gone with another thing's mending: what says so is a
second table (:func:`goes_with`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from provision.model.checks import Check, Code, Detail, Verdict

#: By machine and id of a check: the roots of it, as ``id@machine``.
Roots = Mapping[tuple[str, str], tuple[str, ...]]


class On(Enum):
    """Whose check it is that another one rests on."""

    SAME = "the same machine"
    CONTROLLER = "the controller"
    ANY = "any machine"


_ACCESS = (("access.", On.SAME),)
_DAEMONS = (
    ("access.", On.CONTROLLER),
    ("engine.answers", On.SAME),
    ("engine.answers", On.CONTROLLER),
    ("munge.key_mode", On.SAME),
    ("munge.same_key", On.SAME),
    ("munge.round_trip", On.SAME),
    ("munge.key_mode", On.CONTROLLER),
    ("munge.same_key", On.CONTROLLER),
    ("slurm_image.", On.CONTROLLER),
    ("base_system.firewall", On.SAME),
    ("base_system.firewall", On.CONTROLLER),
)
_ANSWERS = (
    *_DAEMONS,
    ("slurm.daemons", On.SAME),
    ("slurm.daemons", On.CONTROLLER),
    ("slurm.answers", On.SAME),
    ("slurm.answers", On.CONTROLLER),
)
_JOBS = (*_ANSWERS, ("slurm.partitions", On.CONTROLLER), ("slurm.node_state", On.SAME))
_WHOLE = tuple(
    (name, On.ANY)
    for name in (
        "access.", "engine.answers", "munge.key_mode", "munge.same_key", "munge.round_trip", "slurm_image.",
        "slurm.daemons", "slurm.answers", "slurm.partitions", "slurm.node_state", "job.run",
    )
)  # fmt: skip

#: What checks rest on, by the beginning of their ids: the longest that fits counts, beside the run and the way in.
RESTS_ON: Mapping[str, Sequence[tuple[str, On]]] = {
    "images.": (("access.", On.CONTROLLER), ("engine.answers", On.CONTROLLER)),
    "container_engine.files": (("engine.answers", On.SAME),),
    "container_images.": (("access.", On.CONTROLLER),),
    "munge.": (("access.", On.CONTROLLER),),
    "munge.key": (("access.", On.CONTROLLER), ("munge.same_key", On.SAME), ("munge.same_key", On.CONTROLLER)),
    "munge.key_": (("access.", On.CONTROLLER),),
    "job_images.": (("images.registry_answers", On.SAME), ("engine.answers", On.SAME)),
    "job_images.stored": (
        ("access.", On.CONTROLLER),
        ("images.registry_answers", On.SAME),
        ("engine.answers", On.SAME),
        ("job_images.built", On.CONTROLLER),
    ),
    "slurm_client.": (("slurm_image.", On.CONTROLLER), ("engine.answers", On.SAME)),
    "slurm_accounts.": (("slurm_database.", On.SAME), ("engine.answers", On.SAME)),
    "slurm_database.": (("engine.answers", On.SAME), ("slurm_image.", On.CONTROLLER)),
    "slurm_image.": (("engine.answers", On.CONTROLLER), ("images.", On.CONTROLLER)),
    "monitoring.key": (("access.", On.CONTROLLER),),
    "monitoring.slurm": (("engine.answers", On.SAME), ("slurm.daemons", On.SAME), ("slurm.answers", On.SAME)),
    "monitoring.targets": (("machine_metrics.", On.SAME), ("monitoring.services", On.SAME)),
    "slurm.daemons": _DAEMONS,
    "slurm_service.": (*_ANSWERS, ("slurm_service.containers", On.SAME)),
    "slurm_service.containers": (*_DAEMONS, ("images.", On.CONTROLLER)),
    "ddp_validation.": (("access.", On.CONTROLLER), ("slurm_image.", On.CONTROLLER), ("images.", On.CONTROLLER)),
    "slurm.answers": (*_DAEMONS, ("slurm.daemons", On.SAME)),
    "slurm.": _ANSWERS,
    "job.run": _JOBS,
    "job.": (*_JOBS, ("job.run", On.SAME)),
    "session.": (*_WHOLE, ("slurm_client.", On.SAME), ("slurm_service.", On.SAME)),
    "session.accounting": (*_WHOLE, ("slurm_database.", On.ANY)),
    "ddp.result": _WHOLE,
    "ddp.": (*_WHOLE, ("ddp.result", On.ANY)),
    "gpudirect.traffic": (*_WHOLE, ("ddp.result", On.ANY)),
    "nvidia_driver.returned": (
        ("access.", On.CONTROLLER),
        ("engine.answers", On.CONTROLLER),
        ("slurm.answers", On.CONTROLLER),
    ),
    "mig.": (("nvidia_driver.", On.SAME),),
    "nvidia_containers.": (("nvidia_driver.", On.SAME),),
    "gpudirect.": (("nvidia_driver.", On.SAME), ("rdma.", On.SAME)),
    "rdma.transfer": (("rdma.ports", On.SAME), ("rdma.state", On.SAME)),
}


#: Checks whose failure is the silence of another machine, and nothing else.
SILENCE = ("images.registry_answers",)


@dataclass(frozen=True)
class With:
    """A failure that goes with the mending of another one.

    ``check`` and ``root`` are beginnings of ids. ``says`` fits all details of the one, ``root_says`` one of the other's
    (:func:`_says`), so that nothing is put down to a thing that merely happens to be broken, too.
    """

    check: str
    root: str
    on: On
    says: Detail | None = None
    root_says: Detail | None = None


_UNBUILT = Detail(Code.UNBUILT)
#: What a registry is set up by.
_CONFIG = "/docker/registry/config.yml"
#: Who does not answer, says nothing about what it would be asked for; and what is still to be built, nobody has.
GOES_WITH = (
    With("slurm_service.containers", "engine.answers", On.SAME),
    With("slurm_database.containers", "engine.answers", On.SAME),
    With("slurm_accounts.", "slurm_database.answers", On.SAME),
    With("slurm_accounts.", "engine.answers", On.SAME),
    # slurmctld reads all that lies in its directory.
    *(
        With(
            "slurm_service.configuration",
            "slurm_conf.files",
            On.SAME,
            Detail(Code.CONFIGURATION, "slurmctld"),
            Detail(code),
        )
        for code in (Code.CONTENT, Code.ABSENT, Code.PRESENT)
    ),
    # A registry that is not set up as declared may look for its images elsewhere.
    *(
        With(check, "container_images.files", On.CONTROLLER, root_says=Detail(code, _CONFIG))
        for check in ("slurm_image.", "ddp_validation.image")
        for code in (Code.CONTENT, Code.MODE)
    ),
    With("slurm_client.programs", "slurm_image.", On.CONTROLLER, _UNBUILT),
    With("slurm_service.containers", "slurm_image.", On.CONTROLLER, _UNBUILT),
    With("slurm_database.containers", "slurm_image.", On.CONTROLLER, _UNBUILT),
    With("ddp_validation.stored", "ddp_validation.image", On.CONTROLLER, _UNBUILT),
    # The job's script names its image.
    With("ddp_validation.files", "ddp_validation.image", On.CONTROLLER, Detail(Code.CONTENT, "ddp_job.sh")),
    # What is to be made anew is trusted by nobody.
    With("container_images.files", "images.certificates", On.CONTROLLER, Detail(Code.CONTENT, "/ca.crt")),
)


def follows(checks: Sequence[Check], controller: str) -> Roots:
    """Return for each check that has no evidence of its own the roots of it that did not pass, as ``id@machine``.

    Only roots are named: what itself was not decided because of something leads on to that.
    """
    bad = _Bad([check for check in checks if not check.ok], controller)
    return bad.named(lambda check: bad.above(check) if _undecided(check) else ())


def goes_with(checks: Sequence[Check], controller: str) -> Roots:
    """Return for each failure that goes with the mending of others the roots of it, as ``id@machine``.

    ``checks`` are what is to be done, in the order of the roles: a package that several want is the first one's.
    """
    bad = _Bad([check for check in checks if not check.ok], controller)
    return bad.named(bad.mended_by)


def _undecided(check: Check) -> bool:
    return check.verdict is Verdict.UNKNOWN or check.id in SILENCE


class _Bad:
    """The checks that did not pass, found by what their ids begin with and by machine: there can be many thousand."""

    def __init__(self, checks: Sequence[Check], controller: str) -> None:
        self.checks = checks
        self._controller = controller
        self._places = {check: place for place, check in enumerate(checks)}
        self._by_start: dict[str, dict[str, list[Check]]] = {}

    def named(self, above: Callable[[Check], Iterable[Check]]) -> Roots:
        """Return the names of the roots of each check that has some; ``above`` says what one rests on."""
        known: dict[Check, list[Check]] = {}

        def roots(check: Check) -> list[Check]:
            """Return where a check's ways end, nothing where it stands for itself."""
            if check not in known:
                known[check] = []  # a way that leads back to its beginning ends there
                found: dict[Check, None] = {}
                for other in above(check):
                    found.update(dict.fromkeys(roots(other) or [other]))
                known[check] = list(found)
            return known[check]

        return {
            (check.host, check.id): tuple(dict.fromkeys(map(_name, found)))
            for check in self.checks
            if (found := roots(check))
        }

    def mended_by(self, check: Check) -> Iterator[Check]:
        """Yield what a failure goes with."""
        for one in GOES_WITH:
            # What it says beside that is evidence of its own.
            if check.id.startswith(one.check) and _says(check, one.says, all):
                yield from (other for other in self._of(one.root, one.on, check) if _says(other, one.root_says, any))
        if check.id.endswith(".packages"):
            wanted = _missing(check)
            for other in self._of(".packages", On.SAME, check, at=str.endswith):
                if self._places[other] < self._places[check] and wanted and wanted <= _missing(other):
                    yield other

    def above(self, check: Check) -> Iterator[Check]:
        """Yield what did not pass of all that a check rests on."""
        for start, on in rests_on(check.id):
            yield from self._of(start, on, check)
            if start == "access.":
                # One that could be entered, and was lost on the way.
                yield from (other for other in self._of("", on, check) if other.id.endswith(".unreachable"))
        if check.never_ran:
            yield from self._of("run.", On.ANY, check)
            # What a machine's run ended with is why the rest of it never ran.
            for other in self._of("", On.SAME, check):
                if other.id.endswith((".failed", ".unreachable")):
                    yield other

    def _of(self, start: str, on: On, check: Check, at: Callable[[str, str], bool] = str.startswith) -> Iterator[Check]:
        if start not in self._by_start:
            index = self._by_start.setdefault(start, {})
            for other in self.checks:
                if at(other.id, start):
                    index.setdefault(other.host, []).append(other)
        index = self._by_start[start]
        hosts = index if on is On.ANY else [self._controller if on is On.CONTROLLER else check.host]
        for host in hosts:
            yield from (other for other in index.get(host, ()) if other is not check)


def rests_on(name: str) -> Sequence[tuple[str, On]]:
    """Return what a check rests on, by its id: the beginnings of other ids, and whose."""
    if name.startswith("run.") or name.endswith(".unreachable"):
        return ()
    if name.startswith("access."):
        return _ACCESS if name == "access.ready" else ()
    fits = [start for start in RESTS_ON if name.startswith(start)]
    return (*(RESTS_ON[max(fits, key=len)] if fits else ()), *_ACCESS)


def _missing(check: Check) -> set[str]:
    """Return the packages that a check of packages misses."""
    return {detail.thing for detail in check.details if detail.code is Code.MISSING}


def _says(check: Check, wanted: Detail | None, how_many: Callable[[Iterable[bool]], bool]) -> bool:
    """Tell whether all or any of what a check has seen is of this code, about a thing whose name ends so."""
    if wanted is None:
        return True
    fit = [detail.code is wanted.code and detail.thing.endswith(wanted.thing) for detail in check.details]
    return bool(fit) and how_many(fit)


def _name(check: Check) -> str:
    return f"{check.id}@{check.host}" if check.host else check.id
