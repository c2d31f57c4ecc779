"""Reaching real machines: sudo in all its moods."""

from __future__ import annotations

import subprocess
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
    watch = (
        "while [ ! -e /tmp/stop ]; do cat /proc/[0-9]*/cmdline; sleep 0.05; done 2>/dev/null | tr '\\0' ' ' >/tmp/seen"
    )
    watching = subprocess.Popen(["docker", "exec", small_lab.container("node1"), "sh", "-c", watch])
    labs.until(lambda: small_lab.root("node1", "test -s /tmp/seen && echo it watches", check=False))

    probe(small_lab, ansible_user=user, password="hunter2-canary")

    small_lab.root("node1", "touch /tmp/stop")
    watching.wait(labs.PATIENCE)
    seen = small_lab.root("node1", "cat /tmp/seen; rm /tmp/seen /tmp/stop")
    assert "sudo" in seen
    assert "hunter2-canary" not in seen
