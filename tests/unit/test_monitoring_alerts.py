"""When alerts fire and when they stay silent, by Prometheus's own tool for tests of rules."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from provision import content

RULES = content.ROOT / "roles/monitoring/files/alerts.rules"
TESTS = Path(__file__).with_name("monitoring_alerts.yml")
#: Debian's package, unpacked and not installed: it would start a service.
FETCH = "apt-get download prometheus && dpkg-deb --extract prometheus_*.deb ."


@pytest.fixture(scope="module")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> str:
    if found := shutil.which("promtool"):
        return found
    kept = content.ROOT / ".cache/promtool"
    if not (kept / "usr/bin/promtool").exists():
        kept.mkdir(parents=True, exist_ok=True)
        subprocess.run(["sh", "-c", FETCH], cwd=kept, check=True, timeout=600)
    return str(kept / "usr/bin/promtool")


@pytest.mark.slow
def test_each_alert_fires_for_what_it_is_about_and_for_nothing_that_somebody_does_on_purpose(
    promtool: str, tmp_path: Path
) -> None:
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for rule in rules["groups"][0]["rules"]:
        rule.pop("annotations", None)  # promtool would have them repeated
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    tests = TESTS.read_text(encoding="utf-8").replace("ALERTS", "alerts.yml")
    (tmp_path / "tests.yml").write_text(tests, encoding="utf-8")

    done = subprocess.run(
        [promtool, "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_tested_and_says_what_is_wrong_and_what_to_do() -> None:
    alerts = [
        rule for rule in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"] if "alert" in rule
    ]
    tested = {
        case["alertname"]
        for part in yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]
        for case in part["alert_rule_test"]
        if case.get("exp_alerts")
    }

    assert {alert["alert"] for alert in alerts} == tested
    for alert in alerts:
        assert alert["annotations"].keys() == {"summary", "fix"}, alert["alert"]
        assert alert["labels"]["severity"] in {"critical", "warning", "info", "none"}, alert["alert"]
