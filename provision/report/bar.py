"""The bar on a terminal: stage, task, machines done, elapsed, time left. Imported only where there is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, Task
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from provision.model.checks import Verdict
from provision.report.checks import COLOURS
from provision.report.going import Look
from provision.report.grid import Cell, Grid

#: Drawings in a second: often enough to look alive, too seldom to cost anything.
RATE = 4

#: Columns of the table for a subject's name, and for each group of machines.
SUBJECT, CELL = 18, 14

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


class _Shows(Progress):
    """The bar, below what checks have said so far where there is room for it."""

    look: Callable[[], Look] | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        grid = self.look().grid if self.look else None
        if grid and self.console.width >= NARROW:
            yield table(grid, self.console.width, self.console.height - 3)
        yield from super().get_renderables()


def table(grid: Grid, width: int, height: int) -> Table:
    """Return a row for each subject, the newest ``height``, and a column for each group of machines that fits."""
    groups = grid.groups(max(1, (width - SUBJECT) // (CELL + 2)))
    subjects = list(dict.fromkeys(subject for _, cells in groups for subject in cells))
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    shown.add_column("", width=SUBJECT, no_wrap=True, overflow="ellipsis")
    for hosts, _ in groups:
        shown.add_column(Text(hosts), width=CELL, no_wrap=True, overflow="ellipsis")
    for subject in subjects[-max(1, height) :]:
        shown.add_row(Text(subject), *(_cell(cells.get(subject)) for _, cells in groups))
    return shown


def _cell(cell: Cell | None) -> Text:
    if cell is None:
        return Text()
    count = f" {cell.checks}" if cell.verdict is Verdict.PASS else ""
    return Text(f"{cell.verdict}{count}", style=COLOURS[cell.verdict])


class Bar:
    """Draws what ``look`` returns until it is stopped; lines that are said stay above it."""

    def __init__(self, stream: TextIO, look: Callable[[], Look]) -> None:
        console = _Console(file=stream, highlight=False, markup=False, emoji=False)
        columns = _narrow(look) if console.width < NARROW else _wide(look)
        self._progress = _Shows(
            *columns,
            console=console,
            refresh_per_second=RATE,
            transient=True,
            expand=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._progress.look = look
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
