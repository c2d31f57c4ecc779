"""The command line: the one door that turns errors into messages and exit codes. It owns no step of its own."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

import click

import provision
from provision.cli.complete import completion
from provision.cli.inventory import check, render
from provision.cli.job import job
from provision.cli.lab import lab
from provision.cli.lint_job import lint_job
from provision.cli.machines import discover, plan, preflight, reset
from provision.cli.machines import provision as provision_command
from provision.cli.monitor import monitor
from provision.cli.node import node
from provision.cli.report import report
from provision.cli.verify import status, verify
from provision.errors import ClusterctlError, ExitCode


class Terminated(BaseException):
    """SIGTERM or a hang-up, outside of an Ansible run."""


class Door(click.Group):
    """Show what a user can fix as a problem and its fix; anything else is a bug, and its traceback goes to a file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which one needs them."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A reader who leaves early (``| head``) is no error; click would make it one."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return ExitCode.DONE

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run a command and exit with its code."""
        words = list(sys.argv[1:] if args is None else args)
        code: int = ExitCode.BUG
        try:
            result = super().main(words, *rest, **{**extra, "prog_name": "clusterctl", "standalone_mode": False})
            code = result if isinstance(result, int) else ExitCode.DONE
        except ClusterctlError as error:
            code = error.exit_code
            _show(error, words)
        except click.exceptions.Exit as asked:
            code = asked.exit_code
        except click.ClickException as error:
            code = ExitCode.BAD_REQUEST
            _guarded(error.show)
        except (KeyboardInterrupt, click.Abort):
            code = ExitCode.INTERRUPTED
            _say("Stopped.")
        except Terminated:
            code = ExitCode.TERMINATED
            _say("Stopped.")
        except Exception as error:
            code = ExitCode.BUG
            _bug(error)
        _leave(code)


@click.group(cls=Door, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(provision.__version__, prog_name="clusterctl")
def cli() -> None:
    """From bare GPU machines to a Slurm cluster that has proven it can train.

    \b
    Example:
        clusterctl check inventory.ini        # validate the inventory; contacts no machine
        clusterctl provision inventory.ini    # bring the machines to the declared state
        clusterctl verify inventory.ini       # prove that the cluster works

    INVENTORY is an Ansible inventory. The default is $CLUSTERCTL_INVENTORY, then ./inventory.ini, then the lab's
    inventory.
    """


_COMMANDS = (
    check,
    render,
    discover,
    preflight,
    plan,
    provision_command,
    verify,
    report,
    status,
    node,
    monitor,
    job,
    reset,
    lint_job,
    lab,
    completion,
)
for command in _COMMANDS:
    cli.add_command(command)


def main() -> None:
    """Start from the console script."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _terminate)
    cli.main()


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


def _show(error: ClusterctlError, words: Sequence[str]) -> None:
    from provision.model.text import clean

    if "--json" in words:
        from provision.cli.flow import print_json
        from provision.report.documents import error_document

        inner = {**lab.commands, **node.commands, **monitor.commands}
        named = [word for word in words if word in cli.commands or word in inner][:2]
        name = " ".join(named if named[:1] in (["lab"], ["node"], ["monitor"]) else named[:1])
        _guarded(lambda: print_json(error_document(name, error)))
    _say(f"Error: {clean(error.problem)}\n  Fix: {clean(error.fix)}")


def _bug(error: Exception) -> None:
    path = getattr(error, "clusterctl_log", None)
    if path is None:
        with suppress(OSError):
            descriptor, path = tempfile.mkstemp(prefix="clusterctl-", suffix=".log")
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as log:
                log.writelines(traceback.format_exception(error))
    where = f"the traceback is in {path}" if path else "".join(traceback.format_exception(error))
    _say(f"Error: this is a bug: {type(error).__name__}: {error}\n  Fix: report it; {where}")


def _say(text: str) -> None:
    _guarded(lambda: click.echo(text, err=True))


def _guarded(action: Any) -> None:
    """Do something that prints; nobody listening is no reason to end otherwise."""
    with suppress(OSError):
        action()


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # Python would complain once more at its end; give it something to flush into.
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(int(code))


if __name__ == "__main__":
    main()
