"""Reach machines before Ansible does: which step fails, on which machine, and what to do about it.

All machines in parallel, each with a deadline of its own, with strict host keys. See ``target`` for what is asked of
OpenSSH's configuration, ``connect`` for the steps of a connection, ``session`` for what is asked after it.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from provision.model.checks import PATIENCE, Check, Verdict
from provision.model.text import one_line
from provision.ssh.connect import Connection, Deadline, Stopped, mark
from provision.ssh.findings import Finding
from provision.ssh.session import (
    answers,
    judge_session,
    probe_script,
    quoted,
    root_command,
    sweep_script,
    wants_password,
)
from provision.ssh.target import Target

__all__ = ["UNREACHABLE", "Target", "probe", "sweep"]

_Result = TypeVar("_Result")

#: How many processes a machine says that it has ended.
_COUNT = re.compile(r"[0-9]{1,7}")

#: Characters of one text of a check.
_MOST_TEXT = 1000

#: Checks which say that Ansible could not log in either; those of ``access.python`` and ``access.sudo`` could.
UNREACHABLE = frozenset({"access.name", "access.route", "access.port", "access.host_key", "access.login"})


def probe(
    targets: Iterable[Target], *, become_password: str | None = None, timeout: float = 10, workers: int = 32
) -> list[Check]:
    """Try to reach, log in to and become root on every target; return exactly one check for each, in their order.

    Its id names the step that failed (``access.name``, ``.route``, ``.port``, ``.host_key``, ``.login``, ``.python``,
    ``.sudo``), or is ``access.ready``. ``timeout`` is in seconds, once for reaching a machine and once for asking it. A
    sudo password is tried once per machine, and only where sudo asked for one. A machine that logs us in and does not
    answer in time is tried once more with PATIENCE times the limit: it may be busy, or this computer with all of them.
    """

    def one(target: Target, patience: float = 1) -> tuple[Check, bool]:
        password = target.become_password or become_password
        try:
            return _probe(target, become_password=password, timeout=timeout * patience)
        except Exception as error:  # a machine may answer anything: the others must still be probed
            return _broken(target, error), False

    wanted = list(targets)
    found = _in_parallel(one, wanted, workers)
    slow = [position for position, (_, late) in enumerate(found) if late]
    again = _in_parallel(lambda target: one(target, PATIENCE), [wanted[position] for position in slow], workers)
    for position, answer in zip(slow, again, strict=True):
        found[position] = answer
    return [check for check, _ in found]


def _broken(target: Target, error: Exception) -> Check:
    return Check(
        "access.probe",
        target.name,
        Verdict.UNKNOWN,
        cause="the probe itself failed",
        observed=one_line(f"{type(error).__name__}: {error}", _MOST_TEXT),
        expected="an answer",
        fix=f"try it: ssh -v {target.address}",
    )


def sweep(
    targets: Iterable[Target], run_id: str, timeout: float = 5, *, become_password: str | None = None
) -> dict[str, int | None]:
    """End every process of run ``run_id`` on the targets; return how many were ended, per machine.

    None is a machine that the run has install packages: nothing was ended there.

    A process belongs to the run when its environment holds ``CLUSTERCTL_RUN=<run_id>``. Machines that could not be
    asked, or where something survived, are left out of the result: whoever needs certainty looks for missing names.

    Raises:
        ValueError: ``run_id`` is not a run identifier.
    """
    sweep_script("", run_id)

    def one(target: Target) -> tuple[int | None, bool]:
        """Return how many were ended, and whether the machine has answered."""
        if target.skip:
            return None, False
        word, secret = mark(), target.become_password or become_password
        script = sweep_script(word, run_id)
        try:
            with Connection(target, timeout=timeout) as connection:
                left = Deadline(timeout)
                command = script
                as_root = connection.route.user != "root" and target.become
                if as_root:
                    command = root_command(target, script, password=False)
                told = answers(connection.run(command, timeout=left.left()), word)
                if as_root and secret is not None and not told:
                    command = root_command(target, script, password=True)
                    told = answers(connection.run(command, secret=secret, timeout=left.left()), word)
        except Exception:
            return None, False
        killed = told.get("killed", "")
        if "installing" in told:
            return None, True
        return (int(killed), True) if told.get("left") == "0" and _COUNT.fullmatch(killed) else (None, False)

    wanted = list(targets)
    ended = zip(wanted, _in_parallel(one, wanted, workers=64), strict=True)
    return {target.name: count for target, (count, answered) in ended if answered}


def _probe(target: Target, *, become_password: str | None, timeout: float) -> tuple[Check, bool]:
    """Return what came of one machine, and whether more time may help: never where sudo was sent a password."""
    if target.skip:
        return Check("access.ready", target.name, Verdict.SKIP, source=target.skip), False
    secret: str | None = None
    try:
        with Connection(target, timeout=timeout) as connection:
            left = Deadline(timeout)
            printed, told = _ask(connection, None, left)
            if become_password is not None and wants_password(told):
                secret = become_password
                printed, told = _ask(connection, secret, left)
            place = f"{connection.route.user}@{connection.route.place}"
    except Stopped as stopped:
        return _check(target, stopped.finding), False
    finding = judge_session(target, told, secret=secret, printed=printed, late=left.over)
    if finding is not None:
        return _check(target, finding), left.over and secret is None
    ready = f"{place}, Python {quoted(told['python'], secret)}"
    return Check("access.ready", target.name, Verdict.PASS, observed=one_line(ready, _MOST_TEXT)), False


def _ask(connection: Connection, secret: str | None, left: Deadline) -> tuple[str, dict[str, str]]:
    """Run the probe's script; return all that was printed, and what of it answers us."""
    word = mark()
    command = probe_script(connection.target, word, password=secret is not None)
    printed = connection.run(command, secret=secret, timeout=left.left())
    return printed, answers(printed, word)


def _check(target: Target, finding: Finding) -> Check:
    return Check(
        f"access.{finding.step}",
        target.name,
        Verdict(finding.verdict),
        # Greetings, errors and keys are the machine's words, or those of a proxy before it.
        observed=one_line(finding.observed, _MOST_TEXT),
        expected=finding.expected,
        source=finding.source,
        cause=one_line(finding.cause, _MOST_TEXT),
        fix=finding.fix,
    )


def _in_parallel(work: Callable[[Target], _Result], targets: Sequence[Target], workers: int) -> list[_Result]:
    """Apply ``work`` to all targets; on Ctrl-C return at once: the threads are daemons and hold nothing."""
    todo: queue.SimpleQueue[tuple[int, Target]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, _Result]] = queue.SimpleQueue()
    for item in enumerate(targets):
        todo.put(item)

    def labour() -> None:
        while True:
            try:
                position, target = todo.get_nowait()
            except queue.Empty:
                return
            done.put((position, work(target)))

    for _ in range(min(workers, len(targets))):
        threading.Thread(target=labour, daemon=True).start()
    results = dict(done.get() for _ in targets)
    return [results[position] for position in range(len(targets))]
