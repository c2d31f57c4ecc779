"""Whether jobs reach the machines' own Docker as the inventory says, and its overlay networks are there. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from provision.model.checks import Check, Subject, Verdict
from provision.model.facts import MachineFacts
from provision.model.text import brief

#: What the site has chosen, said before anything is changed, in each run.
BEFORE = Subject(
    "job_docker",
    ("risk", "runtime"),
    fix="job_docker: podman has none of this; else keep those who are in the group few",
    before=True,
)

SUBJECT = Subject("job_docker", ("socket", "swarm", "overlay_networks"), fix="clusterctl provision containers")

_NOT_CHOSEN = "job_docker is not socket"

#: By job_container_runtime: what a site takes upon itself that brings its own. Of podman there is a proof.
_RUNTIMES = {
    "pyxis": "pyxis is the site's own package and runs as root in slurmd and slurmstepd; its enroot unpacks images "
    "into the job's /tmp; no check of clusterctl proves that containers of jobs are kept apart",
    "apptainer": "Apptainer is the site's own package and makes user namespaces of its own in jobs; no check of "
    "clusterctl proves that containers of jobs are kept apart",
}


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Return all checks of the subject for one machine.

    ``wants``: ``group`` and ``gid`` of those who may use the engine in jobs, empty where jobs may not or none are here;
    the overlay ``networks``; the swarm's ``manager`` (address and port), whether this machine ``manages`` it, and the
    ``address`` by which the others reach it. ``runtime`` is job_container_runtime, empty where no jobs run.
    """
    answers: Mapping[str, Any] = facts.get("commands", {})
    networks: Sequence[Mapping[str, Any]] = wants["networks"]
    return [
        BEFORE.check(
            "risk",
            Verdict.WARN,
            f"who is in {wants['group']} is root on this machine; what they start is outside Slurm's control groups",
            "jobs have their user's rights",
            source="job_docker=socket",
            cause="it is the site's choice",
        )
        if wants["group"]
        else BEFORE.skip("risk", _NOT_CHOSEN + ", or the machine runs no jobs"),
        BEFORE.check(
            "runtime",
            Verdict.WARN,
            _RUNTIMES[wants["runtime"]],
            "a runtime for job containers that verify proves",
            source=f"job_container_runtime={wants['runtime']}",
            cause="it is the site's choice",
            fix="job_container_runtime: podman has srun --container-image without it; else look after that package",
        )
        if wants["runtime"] in _RUNTIMES
        else BEFORE.skip(
            "runtime", "job_container_runtime brings nothing of the site's own, or the machine runs no jobs"
        ),
        _socket(answers.get("docker_socket"), str(wants["group"]), int(wants["gid"]))
        if wants["group"]
        else SUBJECT.skip("socket", _NOT_CHOSEN + ", or the machine runs no jobs"),
        _swarm(answers.get("swarm"), wants)
        if networks
        else SUBJECT.skip("swarm", "job_docker_overlay_networks declares none"),
        _networks(answers.get("overlays"), networks)
        if networks and wants["manages"]
        else SUBJECT.skip("overlay_networks", "the swarm's manager has them" if networks else "none is declared"),
    ]


def _socket(answer: Mapping[str, Any] | None, group: str, gid: int) -> Check:
    if unanswered := _unanswered("socket", answer):
        return unanswered
    said, wanted = str((answer or {}).get("text", "")).strip(), f"660 {gid}"
    good = (answer or {}).get("rc") == 0 and said == wanted
    return SUBJECT.check(
        "socket",
        good,
        f"it answers, for {group} alone" if good else brief([said]) or "no answer",
        f"the engine answers on {wanted} (mode and group), for {group} alone",
        source="job_docker=socket",
        cause="stopped or changed by hand, or the engine was started without it",
    )


def _swarm(answer: Mapping[str, Any] | None, wants: Mapping[str, Any]) -> Check:
    if unanswered := _unanswered("swarm", answer):
        return unanswered
    told = _json(answer, dict)
    managers = [str(one.get("Addr")) for one in _mappings(told.get("RemoteManagers"))]
    wrong = list(_differs(told, managers, wants))
    apart = (bool(told) and told.get("LocalNodeState") not in ("inactive", "active")) or (managers and wrong)
    return SUBJECT.check(
        "swarm",
        not wrong,
        brief(wrong) or ("its manager" if wants["manages"] else f"a worker of {wants['manager']}"),
        f"{'manager' if wants['manages'] else 'worker'} at {wants['address']}, of the swarm of {wants['manager']}",
        source="job_docker_overlay_networks",
        cause="it is in another swarm, or this one has lost it" if apart else "it was never in one, or has left it",
        fix="where nothing else needs that swarm: docker swarm leave --force, on this machine; then " + SUBJECT.fix
        if apart
        else SUBJECT.fix,
    )


def _differs(told: Mapping[str, Any], managers: Sequence[str], wants: Mapping[str, Any]) -> Iterator[str]:
    if (state := told.get("LocalNodeState")) != "active":
        yield f"it is {state or 'in no swarm'}" + (f": {told['Error']}" if told.get("Error") else "")
        return
    if bool(told.get("ControlAvailable")) is not bool(wants["manages"]):
        yield "it is a manager" if told.get("ControlAvailable") else "it is no manager"
    if str(wants["manager"]) not in managers:
        yield f"its manager is {brief(managers) or 'unknown'}"
    if told.get("NodeAddr") != wants["address"]:
        yield f"the others reach it at {told.get('NodeAddr')}"


def _networks(answer: Mapping[str, Any] | None, networks: Sequence[Mapping[str, Any]]) -> Check:
    if unanswered := _unanswered("overlay_networks", answer):
        return unanswered
    found = {str(one.get("Name")): one for one in _mappings(_json(answer, list))}
    wrong = [f"{network['name']} {why}" for network in networks for why in _unlike(network, found)]
    return SUBJECT.check(
        "overlay_networks",
        not wrong,
        brief(wrong) or f"{len(networks)} there",
        "each there, attachable, with its subnet",
        source="job_docker_overlay_networks",
        cause="never made, or changed by hand",
    )


def _unlike(network: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    there = found.get(str(network["name"]))
    if there is None:
        yield "is absent"
        return
    subnets = [str(one.get("Subnet")) for one in _mappings((there.get("IPAM") or {}).get("Config"))]
    if str(network["subnet"]) not in subnets:
        yield f"has {brief(subnets) or 'no subnet'}, not {network['subnet']}"
    if there.get("Attachable") is not True:
        yield "is not attachable"
    if ("encrypted" in (there.get("Options") or {})) is not bool(network.get("encrypted")):
        yield "is not encrypted" if network.get("encrypted") else "is encrypted"


def _unanswered(name: str, answer: Mapping[str, Any] | None) -> Check | None:
    """Return that nobody knows; a machine without an engine answers, that it has none."""
    if answer is None:
        return SUBJECT.unknown(name, "the machine was not asked")
    return SUBJECT.unknown(name, str(answer["text"])) if answer["rc"] is None and answer["text"] else None


def _json(answer: Mapping[str, Any] | None, kind: type) -> Any:
    try:
        told = json.loads(str((answer or {}).get("text", "")))
    except (ValueError, RecursionError):
        return kind()
    return told if isinstance(told, kind) else kind()


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
