"""What holds for all tests."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "support"), str(HERE / "lab")]
import lanes  # noqa: E402
import support  # noqa: E402

pytest_plugins = ["lab_fixtures"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test that no lane runs, or several: it would be forgotten, or be twice as likely to be in the way."""
    wrong = []
    for item in items:
        try:
            lanes.lane_of(str(item.path.relative_to(lanes.ROOT)), {mark.name for mark in item.iter_markers()})
        except ValueError as error:
            wrong.append(f"{item.name}: {error}")
    if wrong:
        raise pytest.UsageError("\n".join(wrong))


# The same examples each time, however long one takes: a computer that is busy refutes nothing.
settings.register_profile("ours", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")


def pytest_configure() -> None:
    """Let the processes of tests hear the signals that nohup or a shell's background job would have them ignore."""
    for number, action in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, action)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that other users can read: pytest keeps its own from them, anew with each session that begins."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note for the support matrix what a test that has passed says it proves."""
    report = yield
    if report.when == "call" and report.passed:
        for marker in item.iter_markers("proves"):
            kind, system = _tried_on(item, marker.kwargs.get("on", ""), marker.kwargs.get("machine", "head"))
            for row in marker.args:
                support.note(row, system, kind, item.nodeid)
    return report


def _tried_on(item: pytest.Item, rendered_for: str, machine: str) -> tuple[str, str]:
    """Return the kind and the system of a test's machines; the one that is named is asked, not believed."""
    if rendered_for:
        return "rendered", rendered_for
    lab = next(value for value in getattr(item, "funcargs", {}).values() if hasattr(value, "machines"))
    return getattr(lab, "kind", "container"), support.system_of(lab.root(machine, "cat /etc/os-release"))
