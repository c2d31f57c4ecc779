"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let the processes of tests hear the signals that nohup or a shell's background job would have them ignore."""
    for number, action in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, action)
