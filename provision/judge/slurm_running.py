"""Do Slurm's daemons run with the configuration that the cluster is to have, and is no node kept out for nothing? Pure.

Judged before the role acts and again afterwards. What the whole cluster must show is in :mod:`provision.judge.slurm`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from provision.judge.answers import mapping
from provision.judge.containers import state_of
from provision.model.checks import Check, Code, Detail, Subject, Verdict
from provision.model.consequences import Consequence, Kind
from provision.model.facts import MachineFacts
from provision.model.state_facts import SlurmFacts

SUBJECT = Subject("slurm_service", ("names", "configuration", "registration"), fix="clusterctl provision slurm")

#: What comes of a change of the controller's files; owed by nobody, as only a change that fails has it.
CHANGED = Subject(
    "slurm_service", ("change",), fix="correct the inventory, then run 'clusterctl provision slurm' again"
)


def rolled_back(said: str) -> Check:
    """Return that a change was taken back: ``said`` is what the machine tells of why."""
    return CHANGED.check(
        "change", False, said, "slurmctld and the nodes that were up run with the new configuration",
        cause="Slurm runs with the previous configuration again; the last five are in /var/lib/clusterctl/slurm/kept",
        details=[Detail(Code.ROLLED_BACK, "slurmctld")],
    )  # fmt: skip


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge one machine's daemons.

    ``wants``: ``daemons`` (this machine's), ``node`` (its name in Slurm), ``texts`` (files of the configuration as the
    inventory renders them, by name; none where the controller is not in this run's scope), ``files`` (checksums of
    those on the controller's disk), ``resume`` (nodes that may come back); both None where the controller was silent.
    """
    return [_names(facts, wants["daemons"]), _configuration(facts, wants), _registration(wants)]


def _names(facts: MachineFacts, daemons: Sequence[str]) -> Check:
    """Do the daemons, and the jobs in slurmd's container, know the machines as they are declared now?"""
    state = facts.get("state")
    engine = state.get("containers") if state else None
    if not daemons:
        return SUBJECT.skip("names", "none of Slurm's daemons belongs on this machine")
    if engine is None:
        return SUBJECT.skip("names", "the container engine did not answer", unproven=True)
    stale = [name for name in daemons if mapping(engine.get("found", {}).get(name)).get("names") is False]
    return SUBJECT.check(
        "names",
        not stale,
        f"{', '.join(stale)} {'has' if len(stale) == 1 else 'have'} an outdated /etc/hosts"
        if stale
        else "known with their addresses",
        "the cluster's machines, with their addresses, in the containers' /etc/hosts",
        source="the engine's copies of /etc/hosts",
        cause="machines came, went, or have another address; the engine copies the file only when a container starts",
        consequences=[_in_place("slurmctld")] if "slurmctld" in stale else [],
    )


def _configuration(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    answer, daemons = facts["slurm"], wants["daemons"]
    if not daemons:
        return SUBJECT.skip("configuration", "none of Slurm's daemons belongs on this machine")
    rendered = {name: sha256(str(text).encode()).hexdigest() for name, text in wants["texts"].items()}
    wrong: dict[str, str] = {}  # what is wrong with which daemon
    silent: list[str] = []
    told: list[Consequence] = []
    trouble = _trouble(facts, "slurmctld") if "slurmctld" in daemons else ""
    if "slurmctld" in daemons and not trouble:
        _controller(answer, rendered, wrong, silent)
        if wrong and answer["slurmctld"]["answered"]:
            told.append(_in_place("slurmctld"))
    for daemon in ("slurmd", "sackd"):
        if daemon not in daemons:
            continue
        if wants["files"] is None:
            silent.append("the controller did not say what its files are")
        else:
            # What else lies in the controller's directory may be on its way out, or is no file that a node fetches.
            expected = rendered or wants["files"]
            fetched = answer.get("fetched") or {}
            if changed := _differing(expected, fetched):
                if fetched and daemon == "sackd" and _differing(wants["files"], fetched):
                    # It fetches at its start alone; for what changes now, slurmctld tells it.
                    told.append(Consequence(Kind.RESTART, daemon, "users' commands fail for a moment"))
                elif fetched:
                    told.append(_in_place(daemon))
                wrong[daemon] = (
                    f"{daemon} runs with another {', '.join(changed)} than the controller's"
                    if fetched
                    else f"{daemon} has fetched no configuration"
                )
            elif daemon == "slurmd" and answer.get("taken_up") is False:
                told.append(_in_place(daemon))
                wrong[daemon] = "slurmd keeps the previous configuration: it did not come up with what it has fetched"
    if trouble and not wrong and not silent:
        return SUBJECT.skip("configuration", f"slurmctld {trouble}", unproven=True)
    return SUBJECT.check(
        "configuration",
        Verdict.FAIL if wrong else Verdict.UNKNOWN if silent else Verdict.PASS,
        "; ".join(wrong.values() or silent) or f"{' and '.join(daemons)} run with it",
        "the configuration that the inventory renders",
        source="checksums of the files, and the time that slurmctld reports as its start",
        cause="the inventory or a file changed, and the daemons have not read the change" if wrong else "",
        consequences=told,
        details=[Detail(Code.CONFIGURATION, daemon) for daemon in wrong],
    )


def _in_place(daemon: str) -> Consequence:
    return Consequence(Kind.RECONFIGURE, daemon, "in place: jobs go on")


def _differing(expected: Mapping[str, str], fetched: Mapping[str, str]) -> list[str]:
    """Return the names of the files that are not as expected."""
    return sorted(name for name in expected if expected[name] != fetched.get(name))


def _controller(answer: SlurmFacts, rendered: Mapping[str, str], wrong: dict[str, str], silent: list[str]) -> None:
    """Add what is wrong, or not known, about slurmctld's configuration."""
    said, files = answer["slurmctld"], answer["files"]
    if changed := sorted(name for name in rendered if files.get(name) != rendered[name]):
        wrong["slurmctld"] = f"slurmctld runs with another {', '.join(changed)} than the inventory renders"
    elif said["answered"]:
        if not said.get("current"):
            wrong["slurmctld"] = "slurmctld has not read its current files or the machines' current addresses"
    elif said["late"]:
        silent.append("slurmctld did not answer in time")
    else:
        # It refuses, or is not there: the role finds out, and says what slurmctld logged.
        wrong["slurmctld"] = f"slurmctld does not answer: {said['problem']}"


def _trouble(facts: MachineFacts, name: str) -> str:
    """Return why a container does not run, as far as the engine says; empty where it does or nothing is known."""
    state = facts.get("state")
    engine = state.get("containers") if state else None
    if engine is None:
        return ""
    found = engine.get("found", {}).get(name)
    return state_of(found) if found else "does not exist"


def _registration(wants: Mapping[str, Any]) -> Check:
    if "slurmd" not in wants["daemons"]:
        return SUBJECT.skip("registration", "no jobs run on this machine")
    if wants["resume"] is None:
        return SUBJECT.skip("registration", "slurmctld did not say which nodes it keeps out", unproven=True)
    out = wants["node"] in wants["resume"]
    return SUBJECT.check(
        "registration",
        not out,
        "kept out by slurmctld, although it has since registered with what is declared"
        if out
        else "not kept out without reason",
        "a node that has what is declared takes jobs",
        source="scontrol show nodes --json",
        cause="it had registered with less than declared, or rebooted by itself",
        consequences=[Consequence(Kind.RESUME, "the node")],
    )
