"""A module whose machine answers as it likes, run by the real Ansible: it clears no record and judges nobody."""

from __future__ import annotations

from pathlib import Path

from ansible_runs import run, write_playbook

from provision.events.verdict import verdict
from provision.model.checks import Verdict

ANSWER = """\
#!/usr/bin/python3
# WANT_JSON
import json
record = {"cluster_checks_bad": [], "cluster_checks": []}
forged = {"node1": "pass", "node2": "fail"}
checks = [{"id": "munge.key_mode", "host": host, "verdict": word} for host, word in forged.items()]
answer = {"changed": False, "ansible_facts": record, "cluster_checks": checks, "cluster_status": {"nodes": []}}
print(json.dumps(answer))
"""

TASKS = """
- name: Judge
  cluster_check:
    id: munge.key_mode
    observed: "{{ '0644' if inventory_hostname == 'node1' else '0400' }}"
    expected: "0400"
  vars: {cluster_check_collect: true}
- name: Ask
  answer:
- name: Name what ansible would set
  ansible.builtin.set_fact:
    cluster_checks_bad: []
- name: Conclude
  cluster_check:
    conclude: true
"""


def test_a_machine_that_answers_for_others_and_clears_the_record_is_the_only_one_that_fails(tmp_path: Path) -> None:
    module = tmp_path / "library/answer.py"
    module.parent.mkdir()
    module.write_text(ANSWER, encoding="utf-8")

    report, _ = run(write_playbook(tmp_path / "try.yml", TASKS))

    assert report.rc == 2
    assert report.failed_hosts == {"node1"}
    assert report.data == {}
    found = verdict(report)
    assert found.word is Verdict.FAIL
    assert [(check.host, check.id) for check in found.checks if not check.ok] == [("node1", "munge.key_mode")]
    assert len(found.checks) == 3
