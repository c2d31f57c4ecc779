"""The exit code of a command, from what happened on the machines. Pure.

Ansible's own return code cannot be used: it hides failures behind unreachable machines, and is 0 when no machine
matched.
"""

from __future__ import annotations

import re
import signal

from provision.errors import ExitCode
from provision.events.fold import RunReport
from provision.events.verdict import JUDGING, interruptions, verdict
from provision.model.checks import Code, Detail

_ORIGIN = re.compile(r"^Origin: (?P<path>.+?):\d+(:\d+)?$", re.MULTILINE)

#: What Ansible says about things that the operator gave, when it does not say where.
_GIVEN = re.compile(
    r"inventory|--limit|host pattern|no hosts to target|vault|decrypt|password|extra.?vars|variable file", re.IGNORECASE
)


def exit_code(command: str, report: RunReport, *, root: str = "") -> ExitCode:
    """Return the exit code of ``command`` (its name as typed); ``root`` is the directory of our own content."""
    if report.stopped_by is not None:
        return ExitCode.INTERRUPTED if report.stopped_by == signal.SIGINT else ExitCode.TERMINATED
    if _never_started(report):
        return not_started(report, root)
    if command in JUDGING:
        if verdict(report).passed:
            return ExitCode.DONE
        return ExitCode.PREFLIGHT_REFUSED if command == "preflight" else ExitCode.VERIFICATION_FAILED
    if report.failures:
        back = {check.host for check in report.bad_checks() if Detail(Code.ROLLED_BACK, "slurmctld") in check.details}
        if back >= report.failed_hosts:
            return ExitCode.ROLLED_BACK
        whole = any(check.whole for check in report.bad_checks()) and not report.changed_machines
        return ExitCode.PREFLIGHT_REFUSED if whole else ExitCode.MACHINE_FAILED
    if report.unreachable:
        return ExitCode.MACHINE_UNREACHABLE
    if interruptions(report):
        return ExitCode.BUG
    return ExitCode.VERIFICATION_FAILED if report.bad_checks() else ExitCode.DONE


def _never_started(report: RunReport) -> bool:
    """Tell whether Ansible ended by itself before any machine had ended a task."""
    if report.started or report.rc is None:
        return False
    return report.rc != 0 or not (report.failures or report.unreachable)


def not_started(report: RunReport, root: str = "") -> ExitCode:
    """Return why nothing ran: what was given is wrong (also: no machine in scope), or what we bring along is."""
    text = "\n".join(report.messages)
    origins = [match["path"] for match in _ORIGIN.finditer(text)]
    if origins and root:
        ours = any(path.startswith(root) or "/.clusterctl/" in path for path in origins)
        return ExitCode.BUG if ours else ExitCode.BAD_REQUEST
    if report.rc == 0 or _GIVEN.search(text):
        return ExitCode.BAD_REQUEST
    return ExitCode.BUG
