"""What a program on a machine tells of its progress, on its way through the connection."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from waiting import PATIENCE

from provision.model.told import LONGEST, Told, heard, read, shown
from provision.ssh import bounded
from provision.ssh.told import MOST, Ear, ears


def test_a_told_line_comes_back_from_ansibles_output_as_it_went_in() -> None:
    told = Told("node-1.example", "ddp: step 4 of 9", ended=True)

    assert read(shown(told)) == told
    assert heard("clusterctl-told: going ddp: step 4 of 9\r\n", "head") == Told("head", "ddp: step 4 of 9")


@pytest.mark.parametrize(
    "line", ["", "clusterctl-told:", "clusterctl-told: going ", "clusterctl-told: gone x", "x clusterctl-told: going x"]
)
def test_any_other_line_tells_nothing(line: str) -> None:
    assert heard(line, "head") is None


def test_a_machine_cannot_speak_for_another_or_order_a_terminal() -> None:
    told = heard("clusterctl-told: going x\x1b[2J\nended: node2: y\x1b]0;z\x07" + "w" * 10_000, "head")

    assert told is not None
    assert told.text.startswith("x ended: node2: y")
    assert "\x1b" not in told.text
    assert len(told.text) < LONGEST + 50
    assert read(shown(told)) == told


def test_ansibles_output_is_read_as_carefully_as_a_machines() -> None:
    assert read("ended: head: x\x1b[2J\ny") == Told("head", "x y", ended=True)


class Listener:
    """An ear with a clock of its own, and what it has handed on."""

    def __init__(self) -> None:
        self.now, self.told = 0.0, []
        self.ear = Ear(self.told.append, "head", lambda: self.now)


def test_a_line_counts_when_it_is_whole_however_it_is_cut() -> None:
    listener = Listener()
    for letter in b"warning: x\nclusterctl-told: going 1 of 3\nclusterctl-told: ended A":
        listener.ear.hear(bytes([letter]))

    assert listener.told == [Told("head", "1 of 3")]
    listener.ear.hear(b"\n")
    assert listener.told[1:] == [Told("head", "A", ended=True)]


def test_what_comes_faster_than_it_is_read_is_dropped_but_not_what_has_ended() -> None:
    listener = Listener()
    for number in range(50):
        listener.now = number / 10
        listener.ear.hear(f"clusterctl-told: going {number}\n".encode())
    listener.ear.hear(b"clusterctl-told: ended A\n")

    assert [told.text for told in listener.told] == ["0", "5", "10", "15", "20", "25", "30", "35", "40", "45", "A"]


def test_a_machine_that_tells_without_end_fills_neither_memory_nor_terminal() -> None:
    listener = Listener()
    for _ in range(1000):
        listener.ear.hear(b"clusterctl-told: ended A\n" + b"x" * 10_000 + b"\n")
    listener.ear.hear(b"x" * 10_000)

    assert len(listener.told) == MOST
    assert len(listener.ear._rest) < 10_000


def test_it_is_heard_while_the_program_runs_and_is_part_of_what_it_printed() -> None:
    lines: list[str] = []
    task = SimpleNamespace(delegate_to=None)
    worker = SimpleNamespace(_task=task, _host=SimpleNamespace(get_name=lambda: "node1"))
    code = "import os; os.write(2, b'clusterctl-told: going 1 of 2\\n'); os.read(0, 1)"
    popen = bounded.module(ears(lambda: worker, lines.append)).Popen
    process = popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    assert process.stderr.read() == b"clusterctl-told: going 1 of 2\n"
    assert lines == ["going: node1: 1 of 2"]
    assert process.poll() is None
    process.communicate(timeout=PATIENCE)


def test_it_is_the_word_of_the_machine_to_which_the_task_is_delegated() -> None:
    lines: list[str] = []
    worker = SimpleNamespace(_task=SimpleNamespace(delegate_to="head"), _host=SimpleNamespace(get_name=lambda: "node1"))
    ear = ears(lambda: worker, lines.append)()
    assert ear is not None
    ear.hear(b"clusterctl-told: going x\n")

    assert lines == ["going: head: x"]
    assert ears(lambda: None, lines.append)() is None
