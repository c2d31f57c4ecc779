"""The bar and the lines as they are written to a stream."""

from __future__ import annotations

import io

import pytest
from waiting import until

from provision.events.fold import RunReport
from provision.report.bar import Bar
from provision.report.going import Look
from provision.report.progress import Progress


class Terminal(io.StringIO):
    """A stream that says that it is a terminal, as wide as rich is told by COLUMNS."""

    def isatty(self) -> bool:
        return True


class Gone(Terminal):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def look(**more: object) -> Look:
    shown = {"stage": "slurm", "task": "Start", "done": 1, "machines": 4, "failed": 0, "elapsed": "0:09", "left": ""}
    return Look(**{**shown, **more})  # type: ignore[arg-type]


def drawn(monkeypatch: pytest.MonkeyPatch, shown: Look, columns: int) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    bar = Bar(stream, lambda: shown)
    bar.start()
    bar.stop()
    return stream.getvalue()


def test_a_wide_terminal_gets_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    written = drawn(monkeypatch, look(failed=2, left="about 0:40 left"), 120)

    for part in ("slurm", "Start", "1/4 machines, 2 failed", "0:09", "about 0:40 left", "━"):
        assert part in written


def test_a_name_in_brackets_is_text_and_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[/red] [bold]x" in drawn(monkeypatch, look(task="[/red] [bold]x"), 120)


def test_what_is_said_stays_above_the_bar_and_orders_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()

    with Progress(stream, machines=1) as progress:
        progress.say("node1 is \x1b]0;owned\x07left [out]")

    assert "node1 is left [out]\n" in stream.getvalue()
    assert "owned" not in stream.getvalue()


@pytest.mark.parametrize(("stream", "term"), [(io.StringIO(), "xterm"), (Terminal(), "dumb")])
def test_pipes_and_terminals_that_cannot_draw_get_plain_lines(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, term: str
) -> None:
    monkeypatch.setenv("TERM", term)

    with Progress(stream, machines=1) as progress:
        progress.say("hello")

    assert stream.getvalue() == "hello\n"


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_reader_who_has_gone_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)

    with Progress(Gone(), machines=1) as progress:
        progress.say("hello")
        progress(RunReport(), {"event": "playbook_on_stats"})


def test_a_pipe_is_told_what_is_waited_for_without_any_event(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = io.StringIO(), [0.0]
    monkeypatch.setattr("provision.report.progress._EVERY", 0.001)
    report = RunReport(plays=[("slurm", "Run Slurm")])

    with Progress(stream, machines=1, clock=lambda: now[0]) as progress:
        for event in (
            {"event": "playbook_on_play_start", "event_data": {"name": "Run Slurm"}},
            {"event": "playbook_on_task_start", "event_data": {"task": "Start"}},
            {"event": "waiting", "event_data": {"hosts": ["node1"]}},
        ):
            report.add(event)
            progress(report, event)
        now[0] = 15.0
        until(lambda: "waiting" in stream.getvalue())

    assert stream.getvalue().splitlines() == ["slurm: started after 0:00", "slurm: Start: waiting for node1 (0:15)"]


@pytest.mark.parametrize(("stream", "asked"), [(io.StringIO(), 0), (Terminal(), 1)], ids=["a pipe", "a terminal"])
def test_only_where_a_bar_shows_it_an_earlier_run_is_read(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, asked: int
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    times: list[str] = []

    def expected() -> list[tuple[str, float]]:
        times.append("asked")
        return []

    with Progress(stream, expected=expected):
        pass

    assert len(times) == asked
