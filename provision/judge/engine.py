"""Does the container engine answer, with its configuration loaded, and may it be configured? Pure judgement.

A site's own engine stays, and what its daemon.json says. What Slurm's daemons and their jobs could not live with, and
what would lose a container or an image, is refused before anything is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from provision.judge.answers import mapping
from provision.model.addresses import first_within
from provision.model.checks import Check, Subject, Verdict
from provision.model.container_facts import EngineFacts
from provision.model.engine import DATA_ROOT, FILE, flagged
from provision.model.facts import MachineFacts
from provision.model.text import brief

SUBJECT = Subject(
    "engine", names=("answers", "live_restore"), fix="journalctl -u docker; then clusterctl provision containers"
)

BEFORE = Subject("engine", names=("kept", "configuration", "addresses"), fix="clusterctl preflight", before=True)

#: What is wrong, and what to do about it.
Problem = tuple[str, str]

_OPTIONS = "container_engine_options"
#: Runtimes that take what slurmd is given: the machine's processes, control groups and devices.
_RUNTIMES = (None, "", "runc", "io.containerd.runc.v2", "crun", "youki", "nvidia")
_PASSWORD = re.compile(r"://[^/@\s:]*:[^/@\s]+@")


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Return the checks of one machine's engine.

    ``wants``: ``live_restore``, whether containers are to survive a restart of the engine; ``wanted``, all of
    daemon.json as it is to be; ``addresses``, the cluster's, which no network of Docker's may take.
    """
    if "engine" not in facts:
        silence = "the machine did not say whether it has an engine"
        return [*SUBJECT.all_unknown(silence), *BEFORE.all_unknown(silence)]
    info, wanted = facts["engine"], bool(wants["live_restore"])
    before = [
        _refused(
            "kept", "used as it is, with its images and containers", [*_foreign(facts), *moved(info, wants["wanted"])]
        ),
        _refused(
            "configuration", "settings that work with Slurm's daemons and their jobs", contradictions(info, wants)
        ),
        _refused("addresses", "outside Docker's networks", _taken(wants["wanted"], wants["addresses"])),
    ]
    if info["late"] or not info["server"]:
        return [*before, *_silent(info)]
    return [
        *before,
        SUBJECT.check("answers", Verdict.PASS, info["server"], "an engine that answers"),
        SUBJECT.check(
            "live_restore",
            info["live_restore"] is wanted,
            _words(info["live_restore"]),
            _words(wanted),
            source="container_engine_options",
            cause="the engine runs with another configuration than /etc/docker/daemon.json",
        ),
    ]


def refusals(info: EngineFacts, wants: Mapping[str, Any]) -> list[str]:
    """Return in words why nothing is to be written: what has been asked once more since preflight."""
    problems = [
        *moved(info, wants["wanted"]),
        *contradictions(info, wants),
        *_taken(wants["wanted"], wants["addresses"]),
    ]
    return [f"{_OPTIONS}: {problem}. Fix: {fix}" for problem, fix in problems]


def _refused(name: str, expected: str, problems: Iterable[Problem]) -> Check:
    found = list(problems)
    return BEFORE.check(
        name,
        not found,
        brief([problem for problem, _ in found]) or expected,
        expected,
        source=_OPTIONS,
        cause="the site's own engine, or the inventory's settings for it",
        fix="; ".join(dict.fromkeys(fix for _, fix in found)),
    )


def _foreign(facts: MachineFacts) -> Iterator[Problem]:
    """An engine that no package of ours is beside: the distribution's would take its socket."""
    info = facts["engine"]
    docker = mapping(mapping(mapping(facts.get("state")).get("services")).get("docker"))
    if info["server"] and not info["version"]:
        yield (
            "an engine answers, and there is no program dockerd: one of snap, or one without root",
            "move what runs there away and remove it (snap remove docker); or leave the machine out",
        )
    elif info["version"] and docker.get("load") == "not-found":
        yield (
            "there is a dockerd, and systemd has no service docker",
            "install the packages that it comes from (docker-ce), or remove the program",
        )


def moved(info: EngineFacts, wanted: Mapping[str, Any]) -> Iterator[Problem]:
    """What would hide the containers and images that there are: another directory, or another way to store them."""
    for key, now, default in (("data-root", "data_root", DATA_ROOT), ("storage-driver", "driver", "")):
        there = str(info.get(now) or default)
        before, after = (str(said.get(key) or default).rstrip("/") for said in (info.get("daemon") or {}, wanted))
        if info.get("kept") and after not in (before, there.rstrip("/")):
            yield (
                f"with {key} {after or 'left out'} the engine would not have its {info['kept']} containers and images "
                f"any more, which are in {there}",
                f"{_OPTIONS}: {{{key}: {there}}}; or first, on the machine: stop docker and docker.socket, move what "
                f"they have, write the new {key} into {FILE}, and start docker",
            )


def contradictions(info: EngineFacts, wants: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what in daemon.json, as it is to be, breaks the engine or what we run in it."""
    wanted: Mapping[str, Any] = wants["wanted"]
    if info.get("daemon_problem"):
        yield f"{FILE} cannot be read: {info['daemon_problem']}", "correct it on the machine, or remove it"
    if info.get("secret") or _PASSWORD.search(str(wanted)):
        yield (
            f"a password stands in a URL of {FILE}, which is no place for one",
            "name the proxy in a drop-in of docker.service that root alone reads (Environment=HTTPS_PROXY=...)",
        )
    by_flag = flagged(info.get("flags") or ())
    if twice := sorted(wanted.keys() & by_flag):
        yield (
            f"{', '.join(twice)} in {FILE}, and in dockerd's command line: it would not start",
            f"take it out of the unit (systemctl cat docker), or out of the file: {_OPTIONS}: {{{twice[0]}: null}}",
        )
    if "config-file" in by_flag:
        yield f"dockerd reads another file than {FILE}", "take --config-file out of the unit (systemctl cat docker)"
    live = info["live_restore"] if "live-restore" in by_flag else wanted.get("live-restore", False)
    keep = bool(wants["live_restore"])
    if live is not None and bool(live) is not keep:
        yield (
            "live-restore is on, with which no engine is in a swarm"
            if live
            else "live-restore is off: containers, Slurm's too, would end with each restart of the engine",
            f"{_OPTIONS}: {{live-restore: {str(keep).lower()}}}" + ("" if live else ", or false to keep it so"),
        )
    yield from _unbearable(wanted)


def _unbearable(wanted: Mapping[str, Any]) -> Iterator[Problem]:
    if wanted.get("userns-remap"):
        yield (
            "userns-remap: no container could share the machine's processes and network, as Slurm's do",
            f"{_OPTIONS}: {{userns-remap: null}}, which hides the images and containers that there are; "
            "or leave the machine out",
        )
    if wanted.get("no-new-privileges"):
        yield (
            "no-new-privileges: jobs could not become another user, nor start rootless containers",
            f"{_OPTIONS}: {{no-new-privileges: false}}",
        )
    if (runtime := wanted.get("default-runtime")) not in _RUNTIMES:
        yield (
            f"default-runtime {runtime} shares neither processes nor devices with the machine, as slurmd needs",
            f"{_OPTIONS}: {{default-runtime: runc}}",
        )


def _taken(wanted: Mapping[str, Any], addresses: Sequence[str]) -> Iterator[Problem]:
    """What the engine would keep for its own containers, and a machine of the cluster has."""
    pools = wanted.get("default-address-pools")
    bases = [mapping(pool).get("base") for pool in pools] if isinstance(pools, list) else []
    if pools == []:
        yield (
            "each of Docker's own pools of networks has an address of the inventory",
            f"{_OPTIONS}: {{default-address-pools: [{{base: 10.200.0.0/16, size: 24}}]}}, of a network that nobody has",
        )
    named = [("bip", wanted.get("bip")), ("fixed-cidr", wanted.get("fixed-cidr"))]
    for key, network in [*named, *(("default-address-pools", base) for base in bases)]:
        if address := first_within(str(network), addresses):
            yield (
                f"{key} {network} has {address}, an address of the inventory, which containers could not reach",
                f"{_OPTIONS}: {{{key}: ...}} with a network that no machine is in",
            )


def _silent(info: EngineFacts) -> list[Check]:
    """An engine that is not there runs nothing: a failure. One that is late may be slow, which is nothing to act on."""
    late = info["late"]
    why = f"did not answer in {info['limit']} s" if late else "did not answer"
    cause = "dockerd hangs, or the machine is overloaded" if late else info["problem"]
    wanted = f"an answer within {info['limit']} s"
    fix = "journalctl -u docker; systemctl restart docker" if late else SUBJECT.fix
    verdict = Verdict.UNKNOWN if late else Verdict.FAIL
    return [
        SUBJECT.check("answers", verdict, why, wanted, cause=cause, fix=fix),
        SUBJECT.skip("live_restore", f"{why}; see engine.answers", unproven=True),
    ]


def _words(live_restore: object) -> str:
    return "containers survive its restart" if live_restore is True else "containers end with it"
