"""A run ends: with a limit for its stages, when no single question has one that ended it before."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_runs import run, write_playbook

from provision.errors import ExitCode
from provision.events.exit import exit_code
from provision.runner import limits
from provision.runner.process import marked

HANG = """
    - name: Hang
      ansible.builtin.command: sleep 3600
      changed_when: false
"""


def test_a_run_that_has_reached_its_limit_is_stopped_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(limits.STAGES, "hang", (4, 0))

    report, record = run(write_playbook(tmp_path / "hang.yml", HANG))

    assert list(report.warnings) == ["the limit of 4 s for the stage hang was reached, so the run was stopped"]
    assert exit_code("verify", report) is ExitCode.TERMINATED
    assert marked(record.id) == []


def test_a_task_that_has_reached_its_limit_fails_its_machine_and_the_others_go_on(tmp_path: Path) -> None:
    tasks = """
    - name: Ask
      ansible.builtin.command: sleep {{ 3600 if inventory_hostname == 'node1' else 0 }}
      changed_when: false
      failed_when: false
      timeout: "{{ 3 if inventory_hostname == 'node1' else 600 }}"
    - name: Go on
      ansible.builtin.command: "true"
      changed_when: false
    """

    report, _ = run(write_playbook(tmp_path / "ask.yml", tasks))

    ((failure, hosts),) = report.failures.items()
    assert (failure.reason, hosts) == ("Task failed: Timed out after 3 second(s).", {"node1"})
    assert report.hosts["head"].ok == report.hosts["node2"].ok == 2
