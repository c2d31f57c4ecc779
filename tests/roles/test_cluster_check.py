"""The action that judges, run by the real ansible-playbook: each machine of one run is a case."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision import content

#: What each machine judges: the arguments of its tasks.
CASES: dict[str, list[dict[str, Any]]] = {
    "equal": [{"id": "munge.mode", "observed": "0400", "expected": "0400", "cause": "wrong", "fix": "repair"}],
    "different": [{"id": "munge.mode", "observed": "0644", "expected": "0400", "fix": "run provision munge"}],
    "silent": [{"id": "munge.mode", "observed": "{{ absent | default(omit) }}", "expected": "x"}],
    "warned": [{"id": "munge.mode", "observed": "a", "expected": "b", "severity": "warn"}],
    "misspelt": [{"id": "munge.mode", "observd": "1", "expected": "1"}],
    "collecting": [
        {"id": "a.one", "observed": "1", "expected": "2"},
        {"results": [{"id": "a.two", "verdict": "unknown"}]},
        {"id": "a.three", "observed": "3", "expected": "3"},
        {"conclude": True},
    ],
    "concluding": [{"id": "a.one", "observed": "1", "expected": "1"}, {"conclude": True}],
}


class Judged:
    """What a run printed, by machine."""

    def __init__(self, text: str, seen: Path) -> None:
        self.text, self.seen = text, seen

    def failed(self, host: str) -> bool:
        """Whether a task of the machine failed; all of its tasks before that were counted."""
        found = re.search(rf"^{host} +: ok=(\d+) .* failed=(\d+)", self.text, re.MULTILINE)
        assert found, self.text
        assert int(found[1]) + int(found[2]) > 0, self.text
        return found[2] != "0"

    def said(self, host: str) -> str:
        """Return what was printed where a task of the machine failed."""
        return "\n".join(
            re.findall(rf"^fatal: \[{host}\].*(?:\n(?!TASK|fatal|ok|changed).*)*", self.text, re.MULTILINE)
        )


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    here = tmp_path_factory.mktemp("judged")
    tasks: list[dict[str, Any]] = []
    for host, cases in CASES.items():
        when = {"when": f"inventory_hostname == '{host}'"}
        tasks += [
            {"name": f"{host} {number}", "cluster_check": arguments, "register": f"judged_{host}", **when}
            for number, arguments in enumerate(cases)
        ]
    show = {"content": "{{ judged_equal.cluster_checks | to_json }}", "dest": str(here / "out.json"), "mode": "0600"}
    tasks += [{"name": "Show", "ansible.builtin.copy": show, "when": "inventory_hostname == 'equal'"}]
    hosts: dict[str, dict[str, Any]] = {host: {} for host in CASES}
    hosts["collecting"] = hosts["concluding"] = {"cluster_check_collect": True}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (here / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": local}}))
    (here / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    program = str(Path(sys.executable).parent / "ansible-playbook")
    done = subprocess.run(
        [program, "-i", str(here / "inventory.yml"), str(here / "play.yml")],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(here),
            "ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "LC_ALL": "C.UTF-8",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    return Judged(done.stdout + done.stderr, here / "out.json")


def test_equal_is_a_pass_and_carries_no_cause(judged: Judged) -> None:
    assert not judged.failed("equal")
    (check,) = json.loads(judged.seen.read_text())
    assert (check["verdict"], check["host"], check["cause"]) == ("pass", "equal", "")


def test_different_ends_the_machines_run_and_says_both_values_and_the_fix(judged: Judged) -> None:
    assert judged.failed("different")
    assert "munge.mode: fail: observed 0644, expected 0400" in judged.said("different")
    assert "Fix: run provision munge" in judged.said("different")


def test_what_was_not_observed_is_unknown_and_not_a_pass(judged: Judged) -> None:
    assert judged.failed("silent")
    assert "munge.mode: unknown" in judged.said("silent")


def test_a_warning_does_not_end_the_run(judged: Judged) -> None:
    assert not judged.failed("warned")


def test_collecting_records_every_failure_and_goes_on(judged: Judged) -> None:
    assert judged.failed("collecting")
    # The third came, and the fourth is the one that ends it.
    assert re.search(r"^collecting +: ok=3 ", judged.text, re.MULTILINE), judged.text
    assert "a.one: fail: observed 1, expected 2\\na.two: unknown" in judged.said("collecting")


def test_a_conclusion_over_passes_is_a_success(judged: Judged) -> None:
    assert not judged.failed("concluding")


def test_a_misspelt_argument_is_refused(judged: Judged) -> None:
    assert judged.failed("misspelt")
    assert "does not know observd" in judged.said("misspelt")
