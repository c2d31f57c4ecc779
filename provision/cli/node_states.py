"""The state of nodes in Slurm: asked for, changed, waited for, and shown."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as copied
from typing import TYPE_CHECKING, Any

import click

from provision.cli.verify import last_verdicts, state_word
from provision.errors import ExitCode

if TYPE_CHECKING:
    from provision.cli.flow import Opened, Passwords
    from provision.cli.judged import Outcome
    from provision.cli.options import Request

#: How the reason of each of our drains begins: plugins/modules/slurm_node.py undoes no others.
OURS = "clusterctl: "
#: The reason of nodes that are drained for a new slurm.conf.
FOR_CHANGE = f"{OURS}provision"
#: Seconds between two looks at the jobs of nodes that are drained.
EVERY = 20


@dataclass(frozen=True)
class Work:
    """What a command works with: the request, the inventory that it names, and passwords."""

    request: Request
    opened: Opened
    passwords: Passwords

    @classmethod
    def begin(cls, request: Request) -> Work:
        """Ask for passwords, and load the inventory.

        Raises:
            ClusterctlError: the inventory is wrong (2).
        """
        from provision.cli import flow

        passwords = flow.ask(request)
        return cls(request, flow.open_cluster(request, passwords), passwords)

    def on_all(self) -> Work:
        """Return the same for all machines of the inventory, which was written meanwhile.

        Raises:
            ClusterctlError: the inventory is wrong (2).
        """
        from provision.cli import flow

        request = copied(self.request, limit=None)
        return copied(self, request=request, opened=flow.open_cluster(request, self.passwords))

    def on(self, machines: Sequence[str]) -> Work:
        """Return the same for these machines alone."""
        request = copied(self.request, limit=",".join(machines))
        return copied(self, request=request, opened=copied(self.opened, hosts=tuple(machines)))

    def told(self, **variables: Any) -> Work:
        """Return the same with more variables for its runs."""
        words = (*self.request.extra_vars, json_module.dumps(variables))
        return copied(self, request=copied(self.request, extra_vars=words))


def ask(work: Work) -> Outcome:
    """Ask slurmctld for its nodes and jobs."""
    return _play(work, "status")


def change(work: Work, state: str, names: Sequence[str], reason: str, wait: int = 0) -> tuple[Outcome, list[str]]:
    """Have nodes ``drained``, ``resumed`` or ``released``, and wait so many seconds for their jobs.

    Returns the last outcome, and the jobs that are left.
    """
    work = work.told(
        slurm_service_node_names=list(names), slurm_service_node_state=state, slurm_service_node_reason=reason
    )
    until = time.monotonic() + wait
    while True:
        outcome = _play(work, "node")
        held = holding(outcome.report.data.get("cluster_status") or {}, names)
        if outcome.code is not ExitCode.DONE or not held or time.monotonic() >= until:
            return outcome, held
        click.echo(f"waiting for {'; '.join(held[:3])}", err=True)
        time.sleep(EVERY)


def drain(work: Work, names: Sequence[str], reason: str, wait: int, *, empty: bool = False) -> Outcome:
    """Drain nodes, and show them. Jobs that stay longer are a failure, without a wait only if all must be ``empty``."""
    from provision.report.summary import Printer

    outcome, held = change(work, "drained", names, reason, wait)
    show(work, outcome, names, held)
    if held and (wait or empty) and outcome.code is ExitCode.DONE:
        outcome.code = ExitCode.MACHINE_FAILED
    if held and not work.request.json:
        Printer().line(f"still there: {'; '.join(held)}. The nodes take no new jobs")
    return outcome


def give_back(work: Work, state: str, names: Sequence[str], reason: str = "") -> Outcome:
    """Have nodes ``resumed`` or ``released``, and show them."""
    outcome, held = change(work, state, names, reason)
    show(work, outcome, names, held)
    return outcome


def show(work: Work, outcome: Outcome, names: Sequence[str], held: Sequence[str]) -> None:
    """Show nodes in the state that slurmctld told last; for JSON, add them to the document."""
    slurm = outcome.report.data.get("cluster_status") or {}
    outcome.document |= {"slurm": slurm, "holding": list(held)}
    jobs = on_each(slurm)
    _print(work, outcome, [row(one, jobs) for one in slurm.get("nodes", ()) if one.get("name") in names])


def show_all(work: Work, outcome: Outcome) -> None:
    """Show all nodes, with the last verdict on each and its driver."""
    slurm, verified = outcome.report.data.get("cluster_status") or {}, last_verdicts(work.opened.path)
    outcome.document |= {"slurm": slurm, "holding": [], "verified": verified}
    jobs, rows = on_each(slurm), []
    for one in slurm.get("nodes", ()):
        proven = verified.get(str(one["name"]), {})
        rows.append((*row(one, jobs), _proof(proven), proven.get("driver", "")))
    _print(work, outcome, rows, ("VERIFIED", "DRIVER"))


def _print(work: Work, outcome: Outcome, rows: Sequence[tuple[str, ...]], more: tuple[str, ...] = ()) -> None:
    from provision.report.summary import Printer, show_run

    if work.request.json:
        return
    if outcome.code is not ExitCode.DONE:
        show_run(Printer(), "node", outcome.report, simulated=work.opened.simulated)
    if rows:
        Printer().table([("NODE", "STATE", "SINCE", "BY", "REASON", "JOBS", *more), *rows])


def _play(work: Work, playbook: str) -> Outcome:
    from provision.cli import flow

    here = work.on([work.opened.cluster.controller])
    return flow.play(
        "node", [playbook], here.request, opened=here.opened, passwords=here.passwords, lock=None, quiet=True
    )


def holding(slurm: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the jobs that are on any of the nodes: number, user, nodes, and until when they may stay."""
    return [
        f"job {job['id']} ({job['user']}) on {job['nodes']}, {_until(job)}"
        for job in slurm.get("jobs", ())
        if "PENDING" not in job["state"] and _on(job) & set(names)
    ]


def on_each(slurm: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the jobs that are on each node, by their numbers."""
    found: dict[str, list[str]] = {}
    for job in slurm.get("jobs", ()):
        for name in _on(job):
            found.setdefault(name, []).append(str(job["id"]))
    return found


def row(one: Mapping[str, Any], jobs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return a node as a row of the list."""
    reason, since = str(one.get("reason") or ""), int(one.get("reason_at") or 0)
    return (
        str(one["name"]),
        state_word(one),
        _time(since) if reason and since else "",
        str(one.get("reason_by") or "") if reason else "",
        reason,
        ",".join(jobs.get(one["name"], ())),
    )


def _proof(one: Mapping[str, str]) -> str:
    return f"{one['verdict']} {one['at'][:16].replace('T', ' ')}" if one else ""


def _on(job: Mapping[str, Any]) -> set[str]:
    from provision import hostlist

    return set(hostlist.expand(job["nodes"])) if job.get("nodes") else set()


def _until(job: Mapping[str, Any]) -> str:
    return f"at the latest until {_time(job['ends'])}" if job.get("ends") else "without a limit"


def _time(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
