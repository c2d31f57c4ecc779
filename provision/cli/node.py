"""Compute nodes of a running cluster: list, drain, resume, reboot, replace, remove."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as copied
from typing import TYPE_CHECKING, Any

import click

from provision.cli.complete import stage_names
from provision.cli.options import Request, ansible_options, inventory_argument
from provision.cli.verify import state_word
from provision.errors import ClusterctlError, ExitCode

if TYPE_CHECKING:
    from provision.cli.flow import Opened, Passwords
    from provision.cli.judged import Outcome
    from provision.ssh.target import Target

#: How the reason of each of our drains begins: plugins/modules/slurm_node.py undoes no others.
OURS = "clusterctl: "
#: Seconds between two looks at the jobs of nodes that are drained.
EVERY = 20

#: Stages that change on other machines when a node leaves: their names of it, and Slurm's configuration.
WITHOUT = ("preflight", "base", "slurm")

_NODES = click.argument("nodes")
_WAIT = click.option(
    "--wait", default=0, type=click.IntRange(0), metavar="SECONDS", help="Wait for the jobs of the nodes."
)


@click.group()
def node() -> None:
    """List compute nodes, drain, resume, reboot and replace them, and remove them from the cluster.

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
@_WAIT
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


@node.command()
@_NODES
@click.option("--reason", default="reboot", metavar="TEXT", show_default=True, help="Shown by sinfo -R.")
@_WAIT
@ansible_options
def reboot(request: Request, nodes: str, reason: str, wait: int) -> int:
    """Drain nodes, reboot them when their jobs have ended, and resume those that are as the inventory declares.

    \b
    Example:
        clusterctl node reboot node[1-4] --wait 7200
    """
    return _renewed(request, nodes, reason, ("reboot", *stage_names()), f"clusterctl node reboot {nodes}", wait=wait)


@node.command()
@click.argument("name", metavar="NODE")
@click.option(
    "--fingerprint", default="", metavar="SHA256:...", help="The new machine's host key, instead of a question."
)
@ansible_options
def replace(request: Request, name: str, fingerprint: str) -> int:
    """Provision another machine under a node's name and address. Jobs that wait for this node keep waiting for it.

    Trusts the new machine's host key after you have compared it. The machine takes jobs when it is as declared.

    \b
    Example:
        clusterctl node replace node4
    """
    again = f"clusterctl node replace {name}"
    return _renewed(
        request, name, "replace", stage_names(), again, before=lambda target: trust_machine(target, fingerprint)
    )


@node.command()
@_NODES
@click.option("--drain", "drains", is_flag=True, help="Drain the nodes first, and wait for their jobs.")
@click.option(
    "--timeout", default=86400, type=click.IntRange(0), metavar="SECONDS", show_default=True, help="For --drain."
)
@ansible_options
def remove(request: Request, nodes: str, drains: bool, timeout: int) -> int:
    """Remove nodes from the cluster, and what makes them part of it from their machines.

    Moves the nodes to [slurm_removed] in the inventory. Refuses if a running or waiting job needs them.

    \b
    Example:
        clusterctl node remove node4 --drain
    """
    from provision.cli import flow
    from provision.inventory.removed import REMOVED, move, write

    names = _names(nodes)
    passwords = flow.ask(request)
    opened = flow.open_cluster(request, passwords)
    there = [name for name in names if name not in opened.inventory.groups.get(REMOVED, ())]
    _require_nodes(opened, there)
    if there and drains:
        done = _have(request, opened, passwords, "drained", there, f"{OURS}remove", wait=timeout, ends=True)
        if done.code is not ExitCode.DONE:
            return _end(request, done)
    before, again = move(opened.path, there) if there else {}, f"clusterctl node remove {nodes}"
    try:
        whole = copied(request, limit=None)
        opened = flow.open_cluster(whole, passwords)
        done = _play(whole, opened, passwords, WITHOUT, again)
    except ClusterctlError:
        write(before)
        raise
    if done.code is ExitCode.PREFLIGHT_REFUSED:
        write(before)
    controller, lost = opened.cluster.controller, done.report.failed_hosts | done.report.unreachable_hosts
    # Another machine that failed keeps no node in the cluster.
    if controller in lost or done.code not in (ExitCode.DONE, ExitCode.MACHINE_FAILED, ExitCode.MACHINE_UNREACHABLE):
        return _end(request, done)
    limited = copied(request, limit=",".join(names))
    wiped = _play(limited, copied(opened, hosts=tuple(names)), passwords, ["reset"])
    if wiped.code is ExitCode.DONE:
        click.echo(f"{nodes} is out of the cluster; its line under [{REMOVED}] may be deleted", err=True)
        wiped.code = done.code
    else:
        click.echo(f"{nodes} is out of the cluster, but its machine is not reset yet. Next: {again}", err=True)
    return _end(request, wiped)


def trust_machine(target: Target, wanted: str) -> None:
    """Have the machine's host key trusted, after a person has compared it, or by its fingerprint.

    Raises:
        ClusterctlError: it is another than expected, or nobody is there to compare it.
    """
    from provision.ssh import target as targets
    from provision.ssh import trust

    route = targets.settle(target)
    lines = trust.presented(route)
    if trust.trusted(lines, route):
        return
    found = trust.fingerprints(lines, route)
    if wanted:
        good = any(one.endswith(f" {wanted}") for one in found)
    else:
        click.echo("\n".join([f"{target.name} presents other host keys:", *(f"  {one}" for one in found)]), err=True)
        question = "Compare with: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub on its console. Are they equal?"
        try:
            good = click.confirm(question, err=True)
        except click.Abort:  # nobody is there
            good = False
    if not good:
        raise ClusterctlError(
            f"the host key of {target.name} is not the one that was expected: {', '.join(found)}",
            fix="find out which machine answers there, or name the right key: --fingerprint SHA256:...",
        )
    trust.trust(lines, route)


def _names(nodes: str) -> list[str]:
    from provision import hostlist

    return hostlist.expand(nodes)


def _require_nodes(opened: Opened, names: Sequence[str]) -> None:
    known = {node.name for node in opened.cluster.nodes}
    if unknown := [name for name in names if name not in known]:
        raise ClusterctlError(
            f"{unknown[0]} is no compute node of {opened.path}", fix="clusterctl node list names them"
        )


def _renewed(
    request: Request,
    nodes: str,
    reason: str,
    playbooks: Sequence[str],
    again: str,
    *,
    wait: int = 0,
    before: Callable[[Target], None] = lambda _: None,
) -> int:
    """Drain nodes, run playbooks on them without jobs, and resume them when they are as declared.

    ``before`` is done to each when no job is there any more. ``again`` is the command that goes on.
    """
    from provision.cli import flow

    names = _names(nodes)
    passwords = flow.ask(request)
    opened = flow.open_cluster(request, passwords)
    _require_nodes(opened, names)
    done = _have(request, opened, passwords, "drained", names, f"{OURS}{reason}", wait=wait, ends=True)
    if done.code is not ExitCode.DONE:
        return _end(request, done)
    for target in flow.targets_of(opened.inventory, names, request.user):
        before(target)
    limited = copied(request, limit=",".join(names))
    done = _play(limited, copied(opened, hosts=tuple(names)), passwords, playbooks, again)
    if done.code is ExitCode.DONE:
        done = _have(request, opened, passwords, "resumed", names, OURS)
    else:
        click.echo(f"{nodes} takes no jobs. To give it back as it is: clusterctl node resume {nodes}", err=True)
    return _end(request, done)


def _play(request: Request, opened: Opened, passwords: Passwords, playbooks: Sequence[str], again: str = "") -> Outcome:
    """Run playbooks that change machines, and show what they did; ``again`` is the command that goes on."""
    from provision.cli import flow
    from provision.report.summary import Printer, show_run

    command = "provision" if set(playbooks) & set(stage_names()) else "node"
    outcome = flow.play(command, playbooks, request, opened=opened, passwords=passwords, lock="alone")
    if not request.json:
        show_run(
            Printer(),
            command,
            outcome.report,
            simulated=opened.simulated,
            log=str(outcome.run.directory),
            goes_with=outcome.goes_with,
            next_command="" if outcome.code is ExitCode.DONE else again,
        )
    return outcome


def _end(request: Request, outcome: Outcome) -> int:
    """Print the document of what was done last, where asked, and return the exit code."""
    from provision.cli import flow

    outcome.document["exit_code"] = int(outcome.code)
    if request.json:
        flow.print_json(outcome.document)
    return int(outcome.code)


def _run(request: Request, state: str, names: Sequence[str] = (), reason: str = "", *, wait: int = 0) -> int:
    """Have the nodes in that state, where names are given, and show them."""
    from provision.cli import flow

    passwords = flow.ask(request)
    opened = flow.open_cluster(request, passwords)
    _require_nodes(opened, names)
    return _end(request, _have(request, opened, passwords, state, names, reason, wait=wait))


def _have(
    request: Request,
    opened: Opened,
    passwords: Passwords,
    state: str,
    names: Sequence[str] = (),
    reason: str = "",
    *,
    wait: int = 0,
    ends: bool = False,
) -> Outcome:
    """Have the nodes in that state, where names are given, and show them. ``ends``: jobs that stay are a failure."""
    from provision.report.summary import Printer, show_run

    printer = Printer()
    outcome, held = _waited(request, opened, passwords, state, names, reason, wait)
    slurm, answered = outcome.report.data.get("cluster_status") or {}, outcome.code is ExitCode.DONE
    if answered and held and (wait or ends):
        outcome.code = ExitCode.MACHINE_FAILED
    outcome.document |= {"slurm": slurm, "holding": held}
    if request.json:
        return outcome
    if not answered:
        show_run(printer, "node", outcome.report, simulated=opened.simulated)
    rows: list[tuple[str, ...]] = [("NODE", "STATE", "SINCE", "BY", "REASON", "JOBS")]
    jobs = on_each(slurm)
    rows += [row(one, jobs) for one in slurm.get("nodes", ()) if not names or one.get("name") in names]
    if len(rows) > 1:
        printer.table(rows)
    if held and state == "drained":
        printer.line(f"still there: {'; '.join(held)}. The nodes take no new jobs")
    return outcome


def _waited(
    request: Request, opened: Opened, passwords: Passwords, state: str, names: Sequence[str], reason: str, wait: int
) -> tuple[Outcome, list[str]]:
    """Have the nodes in that state, and wait for their jobs; return the last outcome, and the jobs that are left."""
    from provision.cli import flow

    opened = copied(opened, hosts=(opened.cluster.controller,))
    variables = {
        "slurm_service_node_names": list(names),
        "slurm_service_node_state": state,
        "slurm_service_node_reason": reason,
    }
    extra = (*request.extra_vars, json_module.dumps(variables))
    request = copied(request, limit=opened.cluster.controller, extra_vars=extra)
    playbook = "node" if names else "status"
    end = time.monotonic() + wait
    while True:
        outcome = flow.play("node", [playbook], request, opened=opened, passwords=passwords, lock=None, quiet=True)
        held = holding(outcome.report.data.get("cluster_status") or {}, names)
        if outcome.code is not ExitCode.DONE or not held or time.monotonic() >= end:
            return outcome, held
        click.echo(f"waiting for {'; '.join(held[:3])}", err=True)
        time.sleep(EVERY)


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


def _on(job: Mapping[str, Any]) -> set[str]:
    from provision import hostlist

    return set(hostlist.expand(job["nodes"])) if job.get("nodes") else set()


def _until(job: Mapping[str, Any]) -> str:
    return f"at the latest until {_time(job['ends'])}" if job.get("ends") else "without a limit"


def _time(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
