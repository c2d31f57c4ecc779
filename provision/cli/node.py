"""Compute nodes of a running cluster: list, drain, resume."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from provision.cli.options import Request, ansible_options, inventory_argument
from provision.errors import ClusterctlError, ExitCode

#: How the reason of each of our drains begins: plugins/modules/slurm_node.py undoes no others.
OURS = "clusterctl: "
#: Seconds between two looks at the jobs of nodes that are drained.
EVERY = 20

_NODES = click.argument("nodes")


@click.group()
def node() -> None:
    """List compute nodes, drain them for maintenance, and resume them.

    \b
    Example:
        clusterctl node drain node[1-4] --reason "new fans" --wait 7200
    """


@node.command("list")
@inventory_argument
@ansible_options
def list_nodes(request: Request) -> int:
    """List nodes: state, since when, by whom, reason, and the jobs on each.

    \b
    Example:
        clusterctl node list inventory.ini
    """
    return _run(request, "listed")


@node.command()
@_NODES
@click.option("--reason", required=True, metavar="TEXT", help="Shown by sinfo -R.")
@click.option("--wait", default=0, type=click.IntRange(0), metavar="SECONDS", help="Wait for the jobs of the nodes.")
@ansible_options
def drain(request: Request, nodes: str, reason: str, wait: int) -> int:
    """Let nodes finish their jobs and take no new ones. No job ends.

    \b
    Example:
        clusterctl node drain node[1-4] --reason "new fans" --wait 7200
    """
    return _run(request, "drained", _names(nodes), f"{OURS}{reason}", wait=wait)


@node.command()
@_NODES
@ansible_options
def resume(request: Request, nodes: str) -> int:
    """Give drained nodes back to Slurm. A drain that an administrator made with scontrol stays.

    \b
    Example:
        clusterctl node resume node[1-4]
    """
    return _run(request, "resumed", _names(nodes), OURS)


def _names(nodes: str) -> list[str]:
    from provision import hostlist

    return hostlist.expand(nodes)


def _run(request: Request, state: str, names: Sequence[str] = (), reason: str = "", *, wait: int = 0) -> int:
    """Have the nodes in that state, where names are given, and show them."""
    from provision.cli import flow
    from provision.report.summary import Printer, show_run

    passwords = flow.ask(request)
    opened = flow.open_cluster(request, passwords)
    known = {node.name for node in opened.cluster.nodes}
    if unknown := [name for name in names if name not in known]:
        raise ClusterctlError(
            f"{unknown[0]} is no compute node of {opened.path}", fix="clusterctl node list names them"
        )
    opened = replace(opened, hosts=(opened.cluster.controller,))
    variables = {
        "slurm_service_node_names": list(names),
        "slurm_service_node_state": state,
        "slurm_service_node_reason": reason,
    }
    extra = (*request.extra_vars, json_module.dumps(variables))
    request = replace(request, limit=opened.cluster.controller, extra_vars=extra)
    playbook = "node" if names else "status"
    end, printer = time.monotonic() + wait, Printer()
    while True:
        outcome = flow.play("node", [playbook], request, opened=opened, passwords=passwords, lock=None, quiet=True)
        slurm = outcome.report.data.get("cluster_status") or {}
        held = holding(slurm, names)
        if outcome.code is not ExitCode.DONE or not held or time.monotonic() >= end:
            break
        click.echo(f"waiting for {'; '.join(held[:3])}", err=True)
        time.sleep(EVERY)
    code = outcome.code
    if code is ExitCode.DONE and wait and held:
        code = ExitCode.MACHINE_FAILED
    outcome.document |= {"exit_code": int(code), "slurm": slurm, "holding": held}
    if request.json:
        flow.print_json(outcome.document)
        return int(code)
    if outcome.code is not ExitCode.DONE:
        show_run(printer, "node", outcome.report, simulated=opened.simulated)
    rows: list[tuple[str, ...]] = [("NODE", "STATE", "SINCE", "BY", "REASON", "JOBS")]
    jobs = on_each(slurm)
    rows += [row(one, jobs) for one in slurm.get("nodes", ()) if not names or one.get("name") in names]
    if len(rows) > 1:
        printer.table(rows)
    if held and state == "drained":
        printer.line(f"still there: {'; '.join(held)}. The nodes take no new jobs")
    return int(code)


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
        "+".join(one["state"]).lower(),
        _time(since) if reason and since else "",
        str(one.get("reason_by") or "") if reason else "",
        reason,
        ",".join(jobs.get(one["name"], ())),
    )


def _on(job: Mapping[str, Any]) -> set[str]:
    from provision import hostlist

    return set(hostlist.expand(job["nodes"])) if job.get("nodes") else set()


def _until(job: Mapping[str, Any]) -> str:
    return f"at the latest until {_time(job['ends'])}" if job.get("ends") else "without a limit"


def _time(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
