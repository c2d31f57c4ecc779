"""The bar on a terminal: stage, task, machines done, elapsed, time left. Imported only where there is a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TextIO

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from provision.report.going import Look

#: Drawings in a second: often enough to look alive, too seldom to cost anything.
RATE = 4

#: Columns of a terminal below which there is one short text and no bar.
NARROW = 70


class _Console(Console):
    """A console that goes quiet when nobody reads any more; rich's own would end the command with code 1."""

    def on_broken_pipe(self) -> None:
        """Instead of exiting."""
        self.quiet = True


class _Shown(ProgressColumn):
    """A column with what ``text`` makes of a look. Names of machines and tasks are text, and never rich's markup."""

    def __init__(self, look: Callable[[], Look], text: Callable[[Look], str], style: str = "", **column: Any) -> None:
        super().__init__(table_column=Column(no_wrap=True, **column))
        self._look, self._text, self._style = look, text, style

    def render(self, task: Task) -> Text:
        return Text(self._text(self._look()), style=self._style, no_wrap=True, overflow="ellipsis")


class _Machines(ProgressColumn):
    """The bar itself: machines that are done with the task."""

    def __init__(self, look: Callable[[], Look]) -> None:
        super().__init__()
        self._look = look

    def render(self, task: Task) -> ProgressBar:
        look = self._look()
        return ProgressBar(total=max(1, look.machines), completed=look.done, width=16)


class Bar:
    """Draws what ``look`` returns until it is stopped; lines that are said stay above it."""

    def __init__(self, stream: TextIO, look: Callable[[], Look]) -> None:
        console = _Console(file=stream, highlight=False, markup=False, emoji=False)
        columns = _narrow(look) if console.width < NARROW else _wide(look)
        self._progress = Progress(
            *columns,
            console=console,
            refresh_per_second=RATE,
            transient=True,
            expand=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._progress.add_task("", total=None)

    def start(self) -> None:
        """Begin to draw."""
        self._progress.start()

    def stop(self) -> None:
        """Draw no more, and leave nothing behind."""
        self._progress.stop()

    def say(self, line: str) -> None:
        """Write a line above the bar."""
        self._progress.console.print(Text(line), soft_wrap=True)


def _narrow(look: Callable[[], Look]) -> list[ProgressColumn]:
    return [_Shown(look, lambda told: f"{told.elapsed} {told.stage}: {told.task}", ratio=1)]


def _wide(look: Callable[[], Look]) -> list[ProgressColumn]:
    return [
        _Shown(look, lambda told: told.stage, "bold"),
        _Shown(look, lambda told: told.task, ratio=1),
        _Machines(look),
        _Shown(look, _machines),
        _Shown(look, lambda told: told.elapsed, "cyan"),
        _Shown(look, lambda told: told.left, "dim"),
    ]


def _machines(look: Look) -> str:
    return f"{look.done}/{look.machines} machines" + (f", {look.failed} failed" if look.failed else "")
