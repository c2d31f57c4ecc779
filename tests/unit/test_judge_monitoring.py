"""Whether the cluster is watched: keys, figures of Slurm, and who is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provision.judge import monitoring
from provision.model.checks import Check

OWN = {"mode": "0640", "owner": "root:prometheus", "salt": "0a", "fingerprint": "ab"}
SAID = "age=3\nup=1.0\ntold=2\nslurm=2\n"


LISTENING = 'LISTEN 0 4096 10.0.0.1:9100 0.0.0.0:* users:(("prometheus-node",pid=7,fd=3))'


def on_machine(
    told: Any = SAID, own: dict[str, str] = OWN, rc: int | None = 0, listening: Any = (0, LISTENING), **wants: Any
) -> dict[str, Check]:
    wanted = {"controller": True, "fingerprint": "ab", "verified": True, **wants}
    commands = {
        "told_of_slurm": {"rc": rc, "text": told},
        "listening": dict(zip(("rc", "text"), listening, strict=True)),
    }
    facts: Any = {"monitoring": own, "commands": commands}
    return {check.id: check for check in monitoring.exporters(facts, wanted)}


def scraped(
    rows: Any,
    machines: tuple[str, ...] = ("head", "node1"),
    rc: int | None = 0,
    verified: bool = True,
    age: Any = 9,
    name: str = "targets",
    alerted: str = "",
) -> Check:
    text = rows if isinstance(rows, str) else json.dumps({"targets": rows, "age": age})
    facts: Any = {"commands": {"scraped": {"rc": rc, "text": text}, "alerted": {"rc": rc, "text": alerted}}}
    found = {check.id: check for check in monitoring.checks(facts, {"verified": verified, "machines": list(machines)})}
    assert found.keys() == {"monitoring.targets", "monitoring.stored", "monitoring.alerts"}
    return found[f"monitoring.{name}"]


def test_figures_that_are_slurms_own_pass() -> None:
    assert {name: (check.verdict, check.observed) for name, check in on_machine().items()} == {
        "monitoring.key": ("pass", "the cluster's certificate"),
        "monitoring.port": ("pass", "nobody else listens there"),
        "monitoring.slurm": ("pass", "2 nodes"),
    }


@pytest.mark.parametrize(
    ("listening", "verdict", "observed"),
    [
        ((0, LISTENING.replace("prometheus-node", "python3")), "fail", "python3 listens there"),
        ((0, ""), "pass", "nobody else listens there"),
        ((None, ""), "pass", "nobody else listens there"),  # it has no ss yet
        ((None, "did not answer in 10 s"), "unknown", "did not answer in 10 s"),
    ],
)
def test_a_port_that_is_taken_is_named_with_the_program(listening: Any, verdict: str, observed: str) -> None:
    check = on_machine(listening=listening)["monitoring.port"]

    assert (check.verdict, check.observed) == (verdict, observed)
    assert verdict != "fail" or "cluster_monitoring_port" in check.fix


@pytest.mark.parametrize(
    ("told", "verdict", "observed"),
    [
        ("age=3\nup=1.0\ntold=1\nslurm=2\n", "fail", "1 nodes"),
        ("slurm=2\n", "fail", "nothing is told of Slurm"),
        ("age=3600\nup=1.0\ntold=2\nslurm=2\n", "fail", "what is told of Slurm is 3600 s old"),
        ("age=\nup=1.0\ntold=2\nslurm=2\n", "fail", "what is told of Slurm is  s old"),
        ("age=3\nup=0.0\ntold=0\nslurm=2\n", "fail", "slurmctld is told not to answer"),
        ("age=3\nup=0.0\ntold=0\nslurm=0\n", "unknown", "slurmctld did not say which nodes it has"),
        ("age=3\nup=1.0\ntold=x\nslurm=2\n", "fail", "x nodes"),
        ("garbage", "unknown", "slurmctld did not say which nodes it has"),
    ],
)
def test_figures_that_are_not_slurms_fail_and_silence_is_no_pass(told: str, verdict: str, observed: str) -> None:
    check = on_machine(told)["monitoring.slurm"]

    assert (check.verdict, check.observed) == (verdict, observed)


def test_only_the_controller_is_asked_about_slurm_and_only_for_a_verdict() -> None:
    assert on_machine(controller=False)["monitoring.slurm"].verdict == "skip"
    assert on_machine(verified=False)["monitoring.slurm"].verdict == "skip"
    assert on_machine(rc=None, told="did not answer in 20 s")["monitoring.slurm"].verdict == "unknown"


def test_a_certificate_is_the_controllers_or_is_brought_anew() -> None:
    def key(**told: Any) -> tuple[str, str]:
        check = on_machine(**{"controller": False, **told})["monitoring.key"]
        return str(check.verdict), check.observed

    assert key() == ("pass", "the cluster's certificate")
    assert key(fingerprint="cd") == ("fail", "another certificate than the controller's")
    assert key(own={"absent": "No such file or directory"}) == ("fail", "no certificate: No such file or directory")
    assert key(own={"absent": "No such file or directory"}, fingerprint="")[0] == "fail"
    assert key(fingerprint=None)[0] == "unknown"
    assert key(own={})[0] == "unknown"
    assert key(own={}, controller=True)[0] == "unknown"


def test_each_machine_of_the_inventory_is_read() -> None:
    good = [["node", "head", "up", ""], ["node", "node1", "up", ""], ["slurm", "head", "up", ""]]

    assert (scraped(good).verdict, scraped(good).observed) == ("pass", "2 machines are read")
    assert scraped(good, ("head", "node1", "node2")).observed == "node2 (node): not among its targets"
    down = scraped([*good[:1], ["node", "node1", "down", "connection refused"], *good[2:]])
    assert (down.verdict, down.observed) == ("fail", "node1 (node): connection refused")
    assert scraped([*good[:2], ["slurm", "head", "unknown", ""]]).observed == "head (slurm): unknown"


@pytest.mark.parametrize(
    ("age", "verdict", "observed"),
    [
        (9, "pass", "stored 9 s ago"),
        (200, "fail", "stored 200 s ago"),
        (None, "fail", "nothing was stored in the last 5 minutes"),
        ("x", "unknown", "Prometheus did not answer"),
    ],
)
def test_a_prometheus_whose_disk_is_full_stores_nothing(age: Any, verdict: str, observed: str) -> None:
    check = scraped([["node", "head", "up", ""]], age=age, name="stored")

    assert (check.verdict, check.observed) == (verdict, observed)


@pytest.mark.parametrize(
    ("text", "verdict", "observed"),
    [
        ('{"arrived": true, "told": true, "failed": []}', "pass", "a planted alert arrived"),
        ('{"arrived": false, "told": true, "failed": []}', "fail", "Alertmanager did not send a planted alert"),
        ('{"arrived": true, "told": false, "failed": []}', "fail", "Prometheus's alerts do not reach Alertmanager"),
        (
            '{"arrived": true, "told": true, "failed": ["email"]}',
            "fail",
            "notifications failed in the last 15 minutes: email",
        ),
        ("urllib.error.URLError: connection refused", "unknown", "no alert could be planted"),
        ('{"arrived": true, "told": true, "failed": null}', "unknown", "no alert could be planted"),
    ],
)
def test_alerts_arrive(text: str, verdict: str, observed: str) -> None:
    check = scraped([["node", "head", "up", ""]], name="alerts", alerted=text)

    assert (check.verdict, check.observed) == (verdict, observed)


@pytest.mark.parametrize("rows", ["", "null", "[1]", '[["a"]]', '{"a": 1}', '{"targets": [1], "age": 1}', "[" * 5000])
def test_a_prometheus_that_answers_something_else_is_unknown(rows: str) -> None:
    assert scraped(rows).verdict == "unknown"


def test_prometheus_is_asked_for_a_verdict_only() -> None:
    assert scraped([], verified=False).verdict == "skip"
    assert scraped("did not answer in 40 s", rc=None).verdict == "unknown"
