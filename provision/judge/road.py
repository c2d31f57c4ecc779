"""The roles that are observed before they act: who judges each one's machine, and what of its answer goes on. Pure.

A role stands here when its tasks run only where one of its checks fails. ``ROLES`` is in the order of the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from provision.judge import base_system, managed, munge
from provision.model.checks import Check, Subject
from provision.model.facts import MachineFacts
from provision.model.managed import Managed
from provision.model.systems import family

#: A role's own judge, for what packages, files and services do not say.
Judge = Callable[[MachineFacts, Mapping[str, Any]], Sequence[Check]]


@dataclass(frozen=True)
class Role:
    """A role on this road: the stage that it belongs to, the generic checks that its data gives, and its own judge."""

    stage: str
    subject: Subject
    judge: Judge | None = None


def _role(stage: str, name: str, kinds: Sequence[str], judge: Judge | None = None) -> Role:
    return Role(stage, Subject(name, tuple(kinds), fix=f"clusterctl provision {stage}"), judge)


ROLES: Mapping[str, Role] = {
    "base_system": _role("base", "base_system", ("packages", "files", "services"), base_system.checks),
    "munge": _role("munge", "munge", ("packages", "files", "services"), munge.machine_checks),
}


def checks(role: str, facts: MachineFacts, wants: Managed, own: Mapping[str, Any]) -> list[Check]:
    """Return the checks of one role on one machine. ``own`` is what the role's own judge compares with."""
    entry = ROLES[role]
    found = managed.checks(entry.subject, wants, facts.get("state") or {})
    if entry.judge is not None:
        found += entry.judge(facts, own)
    return found


def merge(options: MutableMapping[str, Any], name: str, value: Any) -> None:
    """Add what one role asks to what all roles ask: lists grow, mappings are joined, of numbers the highest counts."""
    if isinstance(value, list | tuple):
        options[name] = [*(there := options.get(name, [])), *(item for item in value if item not in there)]
    elif isinstance(value, Mapping):
        merged = options.setdefault(name, {})
        for key, part in value.items():
            merge(merged, key, part)
    elif isinstance(value, int):
        options[name] = max(value, options.get(name, value))
    else:
        options[name] = value


def handed_on(facts: MachineFacts) -> dict[str, Any]:
    """Return what goes on from a machine's answer, as Ansible facts: each a word that a judge has understood.

    ``os_family`` in Ansible's words; ``cluster_machine``, what the role's own texts rest on; ``cluster_shared``, what
    other machines are compared with.
    """
    system = facts.get("os") or {"id": "", "version": "", "name": ""}
    shared = {}
    if "munge" in facts:
        shared["munge"] = {key: facts["munge"].get(key, "") for key in ("salt", "fingerprint")}
    machine: dict[str, Any] = {"container": bool(facts.get("container"))}
    if "hostname" in facts:
        machine["hostname"] = facts["hostname"]
    if "memlock" in facts:
        machine["memlock"] = {key: facts["memlock"][key] for key in ("login_highest", "service_highest")}
    return {
        "os_family": family(system["id"], system.get("like", "")),
        "cluster_machine": machine,
        "cluster_shared": shared,
    }
