"""Machines whose login does what it likes with what it is sent: bounded in time and size, and given no password."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sshd import running

from provision.model.checks import Check, Verdict
from provision.model.text import one_line
from provision.ssh import reach
from provision.ssh.connect import Connection, Deadline
from provision.ssh.session import wants_password
from provision.ssh.target import Target

SECRET = "hunter2"

#: What a login does instead of running our command, each with the step that is then named.
LOGINS = {
    "echoes what it is sent": ("/bin/cat", "login"),
    "prints without an end": ("/usr/bin/yes hunter2", "login"),
    "prints what is no text": ("head -c 100000000 /dev/urandom", "login"),
    "prints one line without an end": ("tr '\\0' x < /dev/zero", "login"),
    "answers, then hangs": ('sh -c "$SSH_ORIGINAL_COMMAND" | head -1; sleep 600', "python"),
    "looks like a prompt": ("printf '[sudo] password for admin: '; cat", "login"),
}


@pytest.mark.parametrize(("command", "step"), LOGINS.values(), ids=LOGINS)
def test_a_login_that_does_what_it_likes_is_named_at_its_limit(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, command: str, step: str
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    # Once it is reached, the machine has half a second to answer, and then PATIENCE times that. One that answers has
    # four times as long: a real login takes seconds on a computer with other work.
    part = 120 if step == "login" else 30
    monkeypatch.setattr(reach, "Deadline", lambda seconds: Deadline(seconds / part))

    with running(tmp_path_factory.mktemp("ssh"), f"ForceCommand {command}") as server:
        (check,) = reach.probe([Target.from_hostvars("node1", server.hostvars())], become_password=SECRET, timeout=60)

    assert check.id == f"access.{step}", check
    assert check.verdict is Verdict.FAIL
    assert one_line(check.observed) == check.observed
    assert len(check.observed) < 1100


def answering(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str, str | None], str]) -> list[str | None]:
    """Put a machine in the place of a connection; return the list of the secrets that it is sent."""
    sent: list[str | None] = []

    class Route:
        user, place = "admin", "10.0.18.11:22"

    def run(self: Connection, command: str, *, secret: str | None = None, timeout: float) -> str:
        sent.append(secret)
        mark = next(word for word in command.replace('"', " ").replace("'", " ").split() if word.startswith("@"))
        return answer(mark, secret)

    monkeypatch.setattr(Connection, "_connect", lambda self: setattr(self, "route", Route()))
    monkeypatch.setattr(Connection, "run", run)
    return sent


def probed() -> Check:
    (check,) = reach.probe([Target("node1", "10.0.18.11")], become_password=SECRET)
    return check


READY = "{mark} uid 1000\n{mark} python 3.11 /usr/bin/python3\n{mark} asked\n{mark} sudo {sudo}\n{mark} end\n"


def test_the_password_is_sent_only_where_sudo_asked_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(mark: str, secret: str | None) -> str:
        return READY.format(mark=mark, sudo="0" if secret else "1 sudo: a password is required")

    sent = answering(monkeypatch, answer)
    assert probed().id == "access.ready"
    assert sent == [None, SECRET]

    sent = answering(monkeypatch, lambda mark, secret: READY.format(mark=mark, sudo="0"))
    assert probed().id == "access.ready"
    assert sent == [None]

    sent = answering(monkeypatch, lambda mark, secret: READY.format(mark=mark, sudo="1 admin is not in the sudoers"))
    assert probed().id == "access.sudo"
    assert sent == [None]


def test_a_machine_that_echoes_the_password_puts_it_into_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(mark: str, secret: str | None) -> str:
        words = f"1 Sorry, {secret}: h\x1b[1mun\rter2" if secret else "1 sudo: a password is required"
        return f"{secret}\r\n" + READY.format(mark=mark, sudo=words)

    answering(monkeypatch, answer)
    check = probed()

    assert check.verdict is Verdict.FAIL
    assert SECRET not in str(check.as_dict())
    assert "ter2" not in str(check.as_dict())


@pytest.mark.parametrize("count", ["\u00b2", "9" * 5000, "-1", "", "1 2"])
def test_a_count_of_ended_processes_that_is_none_is_a_machine_that_did_not_answer(
    monkeypatch: pytest.MonkeyPatch, count: str
) -> None:
    answering(monkeypatch, lambda mark, secret: f"{mark} killed {count}\n{mark} left 0\n")

    assert reach.sweep([Target("node1", "10.0.18.11")], "run-1") == {}


def test_only_sudos_own_words_ask_for_a_password() -> None:
    told: dict[str, Any] = {"sudo": "1 sudo: a password is required"}

    assert wants_password(told)
    assert not wants_password({})
    assert not wants_password({"sudo": "0"})
