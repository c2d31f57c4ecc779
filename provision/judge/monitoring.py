"""Whether the cluster is watched: who is read, who may read, and whether figures of Slurm are Slurm's. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision.judge.slurm_answers import pairs
from provision.model.checks import Check, Subject
from provision.model.facts import MachineFacts
from provision.model.text import brief, clean

SUBJECT = Subject("monitoring", ("targets", "stored", "alerts"), fix="clusterctl provision monitoring")
#: On each machine, and on the controller.
EXPORTERS = Subject("monitoring", ("key", "port", "slurm"), fix="clusterctl provision monitoring")

#: The node exporter, as the kernel calls it.
_EXPORTER = "prometheus-node"
#: Seconds. Slurm is asked each 15.
_OLD = 120
_NOT_ASKED: Mapping[str, Any] = {"rc": None, "text": "the machine was not asked"}


def exporters(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge one machine. ``wants``: ``controller`` (is it this one), ``fingerprint``, ``verified``.

    ``fingerprint`` is that of the controller's key: empty where it has none yet, None where it did not answer.
    """
    return [_key(facts, wants), _port(facts), _slurm(facts, wants)]


def _key(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    own, expected = facts["monitoring"], "the cluster's certificate"
    if wants["fingerprint"] is None and not wants["controller"]:
        return EXPORTERS.unknown(
            "key", "the controller did not answer, so nothing can be compared with its certificate"
        )
    if not own.get("absent") and not own.get("fingerprint"):
        return EXPORTERS.unknown("key", "the machine did not say what it has")
    same = bool(own.get("fingerprint")) and (wants["controller"] or own.get("fingerprint") == wants["fingerprint"])
    seen = f"no certificate: {own.get('absent')}" if own.get("absent") else "another certificate than the controller's"
    return EXPORTERS.check(
        "key",
        same,
        expected if same else seen,
        expected,
        source="the controller's certificate, compared by a hash with a salt made for this run",
        cause="never installed, removed or changed by hand, or the controller made a new one",
    )


def _port(facts: MachineFacts) -> Check:
    answer = facts.get("commands", {}).get("listening") or _NOT_ASKED
    if answer["rc"] is None and answer["text"]:
        return EXPORTERS.unknown("port", clean(answer["text"], 200))
    others = [name for name in re.findall(r'\(\("([^"]*)"', answer["text"]) if name != _EXPORTER]
    return EXPORTERS.check(
        "port",
        not others,
        f"{brief(others)} listens there" if others else "nobody else listens there",
        "the node exporter's alone",
        source="cluster_monitoring_port",
        cause="another program has taken the port",
        fix="stop that program, or set cluster_monitoring_port to another port, then: clusterctl provision monitoring",
    )


def _slurm(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    if not wants["controller"]:
        return EXPORTERS.skip("slurm", "only the controller reads Slurm")
    if not wants["verified"]:
        return EXPORTERS.skip("slurm", "verify compares it")
    answer = facts.get("commands", {}).get("told_of_slurm") or _NOT_ASKED
    said = pairs(answer["text"]) if answer["rc"] == 0 else {}
    if not (slurm := said.get("slurm", "0")).isdecimal() or slurm == "0":
        return EXPORTERS.unknown("slurm", "slurmctld did not say which nodes it has", cause=clean(answer["text"], 200))
    age, told = said.get("age", ""), f"{said.get('told')} nodes"
    expected = f"{slurm} nodes"
    if "told" not in said:
        seen = "nothing is told of Slurm"
    elif not re.fullmatch(r"-?\d{1,12}", age) or int(age) > _OLD:
        seen = f"what is told of Slurm is {age} s old"
    else:
        seen = told if re.fullmatch(r"1(\.0)?", said.get("up", "")) else "slurmctld is told not to answer"
    return EXPORTERS.check(
        "slurm",
        seen == expected,
        seen,
        f"{expected}, as Slurm has",
        source="sinfo; slurm.prom",
        cause="the service clusterctl-slurm-metrics does not run, or cannot ask slurmctld: see its journal",
    )


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge what Prometheus says of whom it reads, and of what it stores; and whether alerts arrive.

    ``wants``: ``verified``, and all ``machines`` of the inventory.
    """
    if not wants["verified"]:
        return SUBJECT.all_skipped("verify asks Prometheus")
    commands = facts.get("commands", {})
    return [*_prometheus(commands.get("scraped") or _NOT_ASKED, wants), _alerts(commands.get("alerted") or _NOT_ASKED)]


def _prometheus(answer: Mapping[str, Any], wants: Mapping[str, Any]) -> list[Check]:
    said = _said(answer["text"]) if answer["rc"] == 0 else None
    if said is None:
        why = clean(answer["text"], 200)
        return [SUBJECT.unknown(name, "Prometheus did not answer", cause=why) for name in ("targets", "stored")]
    found, age = said
    machines: Sequence[str] = wants["machines"]
    found = {("node", name): "not among its targets" for name in machines} | found
    wrong = [f"{name} ({job}): {state}" for (job, name), state in found.items() if state != "up"]
    return [
        SUBJECT.check(
            "targets",
            not wrong,
            brief(wrong) or f"{len(machines)} machines are read",
            "each machine of the inventory is read",
            source="Prometheus",
            cause="the machine is away, its port is closed or taken, or it has another certificate",
        ),
        SUBJECT.check(
            "stored",
            age is not None and age <= _OLD,
            "nothing was stored in the last 5 minutes" if age is None else f"stored {age} s ago",
            f"stored in the last {_OLD} s",
            source="Prometheus",
            cause="its disk is full",
            fix="df /var/lib/prometheus and journalctl -u prometheus on that host",
        ),
    ]


def _alerts(answer: Mapping[str, Any]) -> Check:
    try:
        said = json.loads(answer["text"]) if answer["rc"] == 0 else {}
        arrived, told = bool(said["arrived"]), bool(said["told"])
        failed = [clean(str(way), 40) for way in said["failed"]]
    except (ValueError, TypeError, LookupError, RecursionError):
        return SUBJECT.unknown("alerts", "no alert could be planted", cause=clean(answer["text"], 200))
    wrong = [
        *(["Alertmanager did not send a planted alert"] if not arrived else []),
        *(["Prometheus's alerts do not reach Alertmanager"] if not told else []),
        *([f"notifications failed in the last 15 minutes: {', '.join(failed)}"] if failed else []),
    ]
    return SUBJECT.check(
        "alerts",
        not wrong,
        "; ".join(wrong) or "a planted alert arrived",
        "a planted alert arrives, and no notification fails",
        source="Alertmanager",
        cause="Alertmanager refuses them, or the mail server or the webhook refuses its notifications",
        fix="journalctl -u prometheus-alertmanager on that host",
    )


def _said(text: str) -> tuple[dict[tuple[str, str], str], int | None] | None:
    """Return what Prometheus has found at each target, by job and machine, and the seconds since it stored something.

    A target is up, or has what is wrong. No seconds: it has stored nothing for 5 minutes.
    """
    try:
        said = json.loads(text)
        found = {
            (str(job), str(node)): "up" if health == "up" else clean(str(error or health), 200)
            for job, node, health, error in said["targets"]
        }
        return found, None if said["age"] is None else int(said["age"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
