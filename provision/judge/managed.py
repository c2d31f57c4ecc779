"""Whether what a role manages stands on a machine as declared: one judge for all roles.

Pure. A role without peculiarities has no judge of its own: its data (:mod:`provision.model.managed`) is what is wanted,
and the check ``<role>.<kind>`` says whether the machine has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from provision.judge import containers
from provision.judge.answers import mapping
from provision.model.checks import Check, Code, Detail, Subject, Verdict
from provision.model.consequences import Consequence, Kind
from provision.model.managed import Managed, Service
from provision.model.places import Place, difference, text_differs
from provision.model.text import brief

#: Places that are named: all that one role has written, where somebody has removed it all.
_SHOWN = 8
#: systemd's words for a service that runs.
_RUNNING = ("active", "reloading")


def checks(subject: Subject, wants: Managed, state: Mapping[str, Any]) -> list[Check]:
    """Return the checks of the kinds that ``subject`` has, from the machine's answer ``state``.

    ``state`` is what ``machine_facts`` reports of ``state``: ``paths``, ``packages``, ``services`` and ``containers``.
    """
    found = []
    if "packages" in subject.names:
        found.append(_packages(subject, wants, state.get("packages")))
    if "files" in subject.names:
        found.append(files(subject, wants, state.get("paths"), state))
    if "services" in subject.names:
        found.append(_services(subject, wants.services, state))
    if "containers" in subject.names:
        found.append(containers.check(subject, wants.containers, state.get("containers")))
    return found


def text_changes(wants: Managed, state: Mapping[str, Any]) -> list[Place]:
    """Return the files whose text differs and may be shown."""
    paths = state.get("paths") or {}
    return [place for place in wants.files if not place.secret and text_differs(place, paths.get(place.path) or {})]


def with_restarts(found: Iterable[Check], wants: Managed, state: Mapping[str, Any]) -> list[Check]:
    """Return the checks of a role's own judge, each that fails with the restarts for which its mending is a reason."""
    services = state.get("services") or {}
    return [
        replace(check, consequences=(*check.consequences, *restarts))
        if check.verdict is Verdict.FAIL
        and (restarts := _restarts((one for one in wants.services if check.id in one.restarted_for), services))
        else check
        for check in found
    ]


def _restarts(services: Iterable[Service], state: Mapping[str, Any]) -> list[Consequence]:
    """Return the restarts of those that run now: others are started, and nobody feels that."""
    return [
        Consequence(Kind.RESTART, service.name, service.restart)
        for service in services
        if service.running and (state.get(service.name) or {}).get("active") in _RUNNING
    ]


def _packages(subject: Subject, wants: Managed, state: Mapping[str, Any] | None) -> Check:
    if state is None:
        return subject.unknown("packages", "the package database did not answer")
    missing = [name for name in wants.packages if name not in state]
    loose = [name for name in wants.packages if wants.held and name in state and not state[name].get("held")]
    problems = [f"missing: {', '.join(missing)}"] if missing else []
    problems += [f"not held: {', '.join(loose)}"] if loose else []
    return subject.check(
        "packages",
        not problems,
        "; ".join(problems) or f"{len(wants.packages)} installed",
        "all installed and held" if wants.held else "all installed",
        cause="removed, or never installed" if missing else "the hold was removed",
        details=[Detail(Code.MISSING, name) for name in missing],
    )


def files(subject: Subject, wants: Managed, state: Mapping[str, Any] | None, machine: Mapping[str, Any]) -> Check:
    """Return the check of what is at paths. ``state`` is the machine's answer by path, ``machine`` all of it."""
    if state is None:
        return subject.unknown("files", "the machine did not say what is there")
    unread = {path: answer.get("error", "") for path, answer in state.items() if "kind" not in answer}
    wrong: list[str] = []
    details: list[Detail] = []
    silent = [f"{place.path}: nobody said what it has to be" for place in wants.files if not place.known]
    pairs = (
        *((place.path, difference(place, "directory", state.get(place.path))) for place in wants.directories),
        *((place.path, difference(place, "file", state.get(place.path))) for place in wants.files),
        *((path, _link_problem(target, state.get(path))) for path, target in wants.links.items()),
        *((path, _absent_problem(state.get(path))) for path in wants.absent),
    )
    # Parts of a role may each name the directory that they share.
    judged = dict.fromkeys(pairs)
    for path, problem in judged:
        if path in unread or path not in state:
            silent.append(f"{path}: {unread.get(path) or 'no answer'}")
        elif problem:
            code, words = problem
            wrong.append(f"{path} {words}")
            details.append(Detail(code, path))
    if wrong or not silent:
        return subject.check(
            "files",
            not wrong,
            brief(wrong, _SHOWN) or f"{len(judged)} as declared",
            "text, mode and owner as declared",
            cause="changed or removed by hand, or never written",
            consequences=_of_writing(wants, _written(wants, state), machine),
            details=details,
        )
    return subject.unknown("files", brief(silent))


def _written(wants: Managed, state: Mapping[str, Any]) -> set[str]:
    """Return the files that get another content: a mode or an owner is changed without anybody reading it again."""
    found = {place: state.get(place.path) or {} for place in wants.files}
    return {
        place.path
        for place, there in found.items()
        if there.get("kind") == "absent" or ("kind" in there and text_differs(place, there))
    }


def _of_writing(wants: Managed, paths: Collection[str], machine: Mapping[str, Any]) -> list[Consequence]:
    """Return the restarts of the services and containers that run now and have read one of these files."""
    readers = [service for service in wants.services if not set(service.started_after).isdisjoint(paths)]
    running = mapping(mapping(machine.get("containers")).get("found"))
    return _restarts(readers, machine.get("services") or {}) + [
        Consequence(Kind.RESTART, one.name, one.replacement)
        for one in wants.containers
        if not set(one.started_after).isdisjoint(paths)
        and mapping(mapping(running.get(one.name)).get("State")).get("Running") is True
    ]


def _link_problem(target: str, state: Mapping[str, Any] | None) -> tuple[Code, str] | None:
    if state is None or "kind" not in state or (state["kind"] == "link" and state.get("target") == target):
        return None
    if state["kind"] == "absent":
        return Code.ABSENT, "is absent"
    if state["kind"] == "link":
        return Code.OTHER, f"leads to {state.get('target')}, not to {target}"
    return Code.OTHER, f"is a {state['kind']}, not a link to {target}"


def _absent_problem(state: Mapping[str, Any] | None) -> tuple[Code, str] | None:
    return None if state is None or state.get("kind", "absent") == "absent" else (Code.PRESENT, "is there")


def _services(subject: Subject, wants: Sequence[Service], state: Mapping[str, Any]) -> Check:
    answers, paths = state.get("services"), state.get("paths") or {}
    if answers is None:
        return subject.unknown("services", "systemd did not answer")
    wrong = [
        f"{service.name} {problem}"
        for service in wants
        if (problem := _service_problem(service, answers.get(service.name) or {}, paths))
    ]
    running = [service.name for service in wants if service.running]
    return subject.check(
        "services",
        Verdict.FAIL if wrong else Verdict.PASS,
        "; ".join(wrong) or f"{', '.join(running) or 'none'} running",
        "running since their files were last changed, and at boot",
        cause="stopped, disabled or masked, or its files changed after its start",
        consequences=_restarts((one for one in wants if _stale(one, answers.get(one.name) or {}, paths)), answers),
    )


def _stale(service: Service, state: Mapping[str, Any], paths: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the first file that is younger than the service's start; empty for none."""
    return _younger(service.started_after, state.get("age", 0), paths) if service.running else ""


def _service_problem(service: Service, state: Mapping[str, Any], paths: Mapping[str, Mapping[str, Any]]) -> str:
    if state.get("load") == "masked":
        return "is masked"
    if state.get("load", "not-found") == "not-found":
        return "is not there"
    if service.running != (state.get("active") in _RUNNING):
        return f"is {state.get('active') or 'unknown'}" + (f" ({state['sub']})" if state.get("sub") else "")
    if service.enabled and state.get("enabled") == "disabled":
        return "is not started at boot"
    if state.get("reload") or (unread := _younger(service.units, state.get("loaded_age", 0), paths)):
        return "has unit files that systemd has not read yet" + ("" if state.get("reload") else f": {unread}")
    if stale := _stale(service, state, paths):
        return f"was started before {stale} changed"
    return ""


def _younger(asked: Sequence[str], age: float, paths: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the first of the files that is younger than ``age`` seconds; empty for none."""
    return next((path for path in asked if (paths.get(path) or {}).get("age", age) < age), "")
