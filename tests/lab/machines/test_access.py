"""Reaching real machines: sudo in all its moods, the sweep as root, and refusals before anything is changed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager

import labs
import pytest

from provision.inventory import loader
from provision.model.checks import Check, Verdict
from provision.ssh import reach
from provision.ssh.reach import Target

PASSWORD = "correct horse"


def target(lab: labs.Lab, machine: str, **changes: object) -> Target:
    variables = loader.load(lab.inventory).hostvars[machine]
    return Target.from_hostvars(machine, {**variables, **changes})


def probe(lab: labs.Lab, *, password: str | None = None, **changes: object) -> Check:
    [check] = reach.probe([target(lab, "node1", **changes)], become_password=password)
    return check


@pytest.fixture
def user(small_lab: labs.Lab) -> Iterator[str]:
    """An account that the lab's key opens and that has a password of its own."""
    name = "someone"
    small_lab.root(
        "node1",
        f"useradd --create-home --shell /bin/bash {name} && echo '{name}:{PASSWORD}' | chpasswd && "
        f"cp -r ~admin/.ssh ~{name}/ && chown -R {name}: ~{name}/.ssh",
    )
    yield name
    gone = f"pkill -KILL -u {name}; userdel --remove --force {name}; rm -f /etc/sudoers.d/{name}"
    small_lab.root("node1", gone, check=False)


@contextmanager
def failures_counted(lab: labs.Lab) -> Iterator[list[int]]:
    """Count what PAM writes down while the block runs."""
    question = "journalctl --no-pager -q | grep -c 'pam_unix(sudo:auth): authentication failure' || true"
    counted: list[int] = []
    before = int(lab.root("node1", question))
    yield counted
    counted.append(int(lab.root("node1", question)) - before)


def test_every_machine_of_a_fresh_lab_is_ready(small_lab: labs.Lab) -> None:
    checks = reach.probe([target(small_lab, machine) for machine in small_lab.machines])

    assert {check.host: check.id for check in checks} == dict.fromkeys(small_lab.machines, "access.ready"), checks


def test_a_user_who_may_not_become_root_is_named(small_lab: labs.Lab, user: str) -> None:
    check = probe(small_lab, ansible_user=user, password=PASSWORD)

    assert (check.id, check.verdict) == ("access.sudo", Verdict.FAIL), check
    assert "may not become root" in check.cause


def test_a_sudo_password_is_asked_for_tried_once_and_accepted(small_lab: labs.Lab, user: str) -> None:
    small_lab.root("node1", f"echo '{user} ALL=(ALL) ALL' > /etc/sudoers.d/{user}")

    none = probe(small_lab, ansible_user=user)
    with failures_counted(small_lab) as failures:
        wrong = probe(small_lab, ansible_user=user, password="wrong")
    right = probe(small_lab, ansible_user=user, password=PASSWORD)

    assert (none.id, none.verdict) == ("access.sudo", Verdict.FAIL), none
    assert "-K" in none.fix
    assert (wrong.id, wrong.verdict) == ("access.sudo", Verdict.FAIL), wrong
    assert "wrong" in wrong.cause
    assert failures == [1]
    assert right.id == "access.ready", right


def test_a_password_is_in_no_command_line_while_it_is_tried(small_lab: labs.Lab, user: str) -> None:
    # sudo's own delay after a wrong password is the time in which its command line can be seen.
    small_lab.root("node1", f"echo '{user} ALL=(ALL) ALL' > /etc/sudoers.d/{user}")
    watch = "for i in $(seq 40); do cat /proc/[0-9]*/cmdline; sleep 0.05; done 2>/dev/null | tr '\\0' ' ' > /tmp/seen"
    labs.docker("exec", "--detach", small_lab.container("node1"), "sh", "-c", watch)

    probe(small_lab, ansible_user=user, password="hunter2-canary")
    time.sleep(2)

    seen = small_lab.root("node1", "cat /tmp/seen; rm /tmp/seen")
    assert "sudo" in seen
    assert "hunter2-canary" not in seen


def test_the_sweep_ends_processes_of_root_and_no_others(small_lab: labs.Lab) -> None:
    def start(run: str, script: str) -> None:
        mark = f"CLUSTERCTL_RUN={run}"
        labs.docker("exec", "--detach", "--env", mark, small_lab.container("node1"), "sh", "-c", script)

    start("run-7", "sleep 300 & wait")
    start("run-70", "exec sleep 301")
    time.sleep(0.5)

    ended = reach.sweep([target(small_lab, machine) for machine in small_lab.machines], "run-7")

    left = small_lab.root("node1", "pgrep -x -a sleep; pkill -x sleep")
    assert ended == {"head": 0, "node1": 2}
    assert [line.split(maxsplit=1)[1] for line in left.splitlines()] == ["sleep 301"]


def test_a_machine_that_hangs_or_is_off_costs_seconds_and_the_others_are_told_about(small_lab: labs.Lab) -> None:
    targets = [target(small_lab, machine) for machine in small_lab.machines]
    off = dataclasses.replace(targets[1], name="node9", address=small_lab.address("head").rpartition(".")[0] + ".250")
    labs.docker("pause", small_lab.container("node1"))
    try:
        begun = time.monotonic()
        head, hanging, absent = reach.probe([*targets, off])
        spent = time.monotonic() - begun
    finally:
        labs.docker("unpause", small_lab.container("node1"))

    assert head.id == "access.ready"
    assert (hanging.id, hanging.verdict) == ("access.port", Verdict.FAIL), hanging
    assert (absent.id, absent.verdict) == ("access.route", Verdict.FAIL), absent
    assert spent < 12
