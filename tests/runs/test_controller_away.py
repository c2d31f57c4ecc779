"""A controller that cannot be reached, as plays meet it in which one machine asks it for all: no node pays for it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_runs import INVENTORY, run, write_playbook

from provision import content
from provision.events.fold import RunReport
from provision.judge import gpus, jobs, manifest, munge, slurm, slurm_daemons

NODES = ("node1", "node2")


@pytest.fixture(scope="module")
def away() -> Iterator[str]:
    """An inventory whose controller is a port of this computer at which nobody answers; the nodes are this computer."""
    with socket.socket() as taken:
        # Bound and never listening: a connection is refused at once, and nobody else gets the port meanwhile.
        taken.bind(("127.0.0.1", 0))
        where = f"head ansible_host=127.0.0.1 ansible_port={taken.getsockname()[1]} ansible_connection=ssh"
        yield INVENTORY.replace("head ansible_host=192.0.2.1", where)


def asked(directory: Path, inventory: str, tasks: str) -> RunReport:
    """Run tasks on the one machine that asks the controller, which is no part of the run."""
    report, _ = run(write_playbook(directory / "ask.yml", tasks, hosts="node1"), text=inventory, limit=NODES)
    return report


def test_every_node_is_judged_and_none_is_called_unreachable_for_it(tmp_path: Path, away: str) -> None:
    # Those of verify that need the controller: neither the observation, nor what looks at hardware, nor the verdict.
    plays = [play for play in yaml.safe_load(content.playbook("verify").read_text()) if "hosts" in play]
    others = {"Verify the hardware of the compute nodes", "Report the verdict"}
    book = tmp_path / "verify.yml"
    book.write_text(yaml.safe_dump([play for play in plays if play["name"] not in others]))

    report, _ = run(book, text=away, limit=NODES)

    owed = manifest.owed("verify", {"slurm_compute": NODES})
    subjects = (munge.SUBJECT, slurm.SUBJECT, slurm_daemons.SUBJECT, gpus.SUBJECT, jobs.SUBJECT)
    of_these = {(host, name) for host, name in owed if any(name in subject.ids for subject in subjects)}
    there = {(check.host, check.id) for check in report.checks}
    assert of_these - there == set()
    assert {name for _, name in there} >= {name for host, name in owed if not host}
    # The controller is named, and no node for it.
    assert (report.failures, report.unreachable_hosts) == ({}, {"head"})
    assert {host: counts.unreachable for host, counts in report.hosts.items()} == dict.fromkeys(NODES, 0)
    told = next(check for check in report.checks if check.id == "slurm.node_state").observed
    assert "the controller did not answer" in told
    assert "Connection refused" in told


def test_an_observation_goes_on_without_the_controller(tmp_path: Path, away: str) -> None:
    book = tmp_path / "observe.yml"
    book.write_text(
        f"- ansible.builtin.import_playbook: {content.playbook('observe')}\n"
        "  vars: {__stage_roles: [munge], __observed_then: prove, cluster_check_collect: true}\n"
    )

    report, _ = run(book, text=away, limit=NODES)

    assert {(check.host, check.id) for check in report.checks} >= {(node, "munge.key") for node in NODES}
    assert (report.failures, report.unreachable) == ({}, {})


ASK = """
- name: Ask
  delegated_answer: {options}
  register: answered
  delegate_to: head
  delegate_facts: true
  failed_when: false
  timeout: {limit}
- name: Say what was answered
  cluster_report:
    status:
      unreached: "{{{{ answered.unreached | default('') }}}}"
      stdout: "{{{{ answered.stdout | default('') }}}}"
"""


def ask(limit: int = 300, **options: Any) -> str:
    return ASK.format(options=json.dumps({"module": "ansible.legacy.command", "options": options}), limit=limit)


def test_a_controller_that_was_silent_is_not_waited_for_again(tmp_path: Path) -> None:
    count = tmp_path / "count"
    again = ask(5, argv=["sh", "-c", f"echo >>{count}; exec sleep 3600"])

    report = asked(tmp_path, INVENTORY, again * 2)

    assert count.read_text() == "\n"
    assert report.data["cluster_status"]["unreached"] == "it did not answer within 5 s"
    assert (report.failures, report.unreachable_hosts) == ({}, {"head"})


def test_a_controller_that_answers_is_asked_each_time(tmp_path: Path) -> None:
    report = asked(tmp_path, INVENTORY, ask(argv=["echo", "one"]) + ask(argv=["echo", "two"]))

    assert report.data["cluster_status"] == {"unreached": "", "stdout": "two"}
