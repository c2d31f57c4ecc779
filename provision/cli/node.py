"""Compute nodes of a running cluster: list, drain, resume, reboot, replace, add, remove."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace as copied
from typing import TYPE_CHECKING, Any

import click

from provision.cli.complete import stage_names
from provision.cli.options import Request, ansible_options, inventory_argument, timeout_option
from provision.cli.verify import last_verdicts, state_word
from provision.errors import ClusterctlError, ExitCode
from provision.slurm.names import NEW_NODES

if TYPE_CHECKING:
    from provision.cli.flow import Opened, Passwords
    from provision.cli.judged import Outcome
    from provision.runner.journal_lock import Hold
    from provision.ssh.target import Target

#: How the reason of each of our drains begins: plugins/modules/slurm_node.py undoes no others.
OURS = "clusterctl: "
#: The reason of nodes that are drained for a new slurm.conf.
FOR_CHANGE = f"{OURS}provision"
#: Seconds between two looks at the jobs of nodes that are drained.
EVERY = 20

#: Stages that change on other machines when a node comes or leaves: names, mirrors of images, Slurm's configuration,
#: who is watched.
EVERYWHERE = ("preflight", "base", "containers", "slurm", "monitoring")

_NODES = click.argument("nodes")
_WAIT = click.option(
    "--wait", default=0, type=click.IntRange(0), metavar="SECONDS", help="Wait for the jobs of the nodes."
)


@click.group()
def node() -> None:
    """List compute nodes, drain, resume, reboot and replace them, add them to the cluster and remove them from it.

    \b
    Example:
        clusterctl node drain node[1-4] --reason "new fans" --wait 7200
    """


@node.command("list")
@inventory_argument
@ansible_options
def list_nodes(request: Request) -> int:
    """List nodes: state, since when, by whom, reason, the jobs on each, the last verdict of verify, and the driver.

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
@ansible_options
def add(request: Request, nodes: str) -> int:
    """Provision nodes that are new in the inventory, and verify them. Users' jobs begin there when verify has passed.

    Write the nodes under [slurm_compute] first. Until then the reservation clusterctl-new keeps them for verify's jobs.

    \b
    Example:
        clusterctl node add node4
    """
    from provision.cli import flow

    names, again = _names(nodes), f"clusterctl node add {nodes}"
    passwords = flow.ask(request)
    opened = flow.open_cluster(request, passwords)
    _require_nodes(opened, names)
    done, _ = waited(request, opened, passwords, "listed")
    if done.code is not ExitCode.DONE:
        _show("node", opened, done, again)
        return end(request, done)
    there = done.report.data["cluster_status"]["nodes"]
    require_new(there, names)
    limited = copied(_told(request, cluster_test_reservation=NEW_NODES), limit=",".join(names))
    alone = [stage for stage in stage_names() if stage != "slurm"]
    unknown = sorted(set(names) - {one["name"] for one in there})
    joining = _told(limited, slurm_service_node_names=unknown)
    done = _play(joining, copied(opened, hosts=tuple(names)), passwords, ["join", *alone], again, last=False)
    if done.code is not ExitCode.DONE:
        return end(request, done)
    reserving = {"slurm_service_node_names": names, "slurm_service_node_state": "reserved"}
    whole = copied(_told(limited, **reserving), limit=None)
    # Once more, as hardware has been discovered.
    opened = flow.open_cluster(whole, passwords)
    done = _play(whole, opened, passwords, EVERYWHERE, again, last=False)
    # Another machine that failed keeps no node out of the cluster.
    if not _done_on(done, {opened.cluster.controller, *names}):
        return end(request, done)
    verified = _play(limited, copied(opened, hosts=tuple(names)), passwords, ["verify"], again)
    if verified.code is ExitCode.DONE:
        released = have(limited, opened, passwords, "released", names)
        verified.code = done.code if released.code is ExitCode.DONE else released.code
    else:
        click.echo(f"{nodes} takes no users' jobs: it stays in the reservation {NEW_NODES}", err=True)
    return end(request, verified)


@node.command()
@_NODES
@click.option("--drain", "drains", is_flag=True, help="Drain the nodes first, and wait for their jobs.")
@timeout_option
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
        done = have(request, opened, passwords, "drained", there, f"{OURS}remove", wait=timeout, ends=True)
        if done.code is not ExitCode.DONE:
            return end(request, done)
    before, again = move(opened.path, there) if there else {}, f"clusterctl node remove {nodes}"
    try:
        whole = copied(request, limit=None)
        opened = flow.open_cluster(whole, passwords)
        done = _play(whole, opened, passwords, EVERYWHERE, again)
    except ClusterctlError:
        write(before)
        raise
    if done.code is ExitCode.PREFLIGHT_REFUSED:
        write(before)
    # Another machine that failed keeps no node in the cluster.
    if not _done_on(done, {opened.cluster.controller}):
        return end(request, done)
    limited = copied(request, limit=",".join(names))
    wiped = _play(limited, copied(opened, hosts=tuple(names)), passwords, ["reset"])
    if wiped.code is ExitCode.DONE:
        click.echo(f"{nodes} is out of the cluster; its line under [{REMOVED}] may be deleted", err=True)
        wiped.code = done.code
    else:
        click.echo(f"{nodes} is out of the cluster, but its machine is not reset yet. Next: {again}", err=True)
    return end(request, wiped)


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


def require_new(slurm: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Refuse nodes that are in the cluster: ``slurm`` are its nodes, as ``clusterctl status`` has them.

    Raises:
        ClusterctlError: slurmd of one has registered, and the node is not among the new ones.
    """
    for one in slurm:
        heard = not {"UNKNOWN", "NOT_RESPONDING"} & set(one["state"])
        if one["name"] in names and heard and one["reservation"] != NEW_NODES:
            raise ClusterctlError(
                f"{one['name']} is in the cluster already ({state_word(one)})",
                fix=f"clusterctl provision --limit {one['name']}",
                exit_code=ExitCode.PREFLIGHT_REFUSED,
            )


def _done_on(outcome: Outcome, machines: Collection[str]) -> bool:
    """Tell whether a run came to its end on these machines, whatever became of others."""
    ended = outcome.code in (ExitCode.DONE, ExitCode.MACHINE_FAILED, ExitCode.MACHINE_UNREACHABLE)
    return ended and not set(machines) & (outcome.report.failed_hosts | outcome.report.unreachable_hosts)


def _told(request: Request, **variables: Any) -> Request:
    """Return the request with more variables for its run."""
    return copied(request, extra_vars=(*request.extra_vars, json_module.dumps(variables)))


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
    done = have(request, opened, passwords, "drained", names, f"{OURS}{reason}", wait=wait, ends=True)
    if done.code is not ExitCode.DONE:
        return end(request, done)
    for target in flow.targets_of(opened.inventory, names, request.user):
        before(target)
    limited = copied(request, limit=",".join(names))
    done = _play(limited, copied(opened, hosts=tuple(names)), passwords, playbooks, again)
    if done.code is ExitCode.DONE:
        done = have(request, opened, passwords, "resumed", names, OURS)
    else:
        click.echo(f"{nodes} takes no jobs. To give it back as it is: clusterctl node resume {nodes}", err=True)
    return end(request, done)


def _play(
    request: Request,
    opened: Opened,
    passwords: Passwords,
    playbooks: Sequence[str],
    again: str = "",
    *,
    last: bool = True,
) -> Outcome:
    """Run playbooks on machines, and show what they did; ``again`` is the command that goes on.

    One that is not the ``last`` of a command is shown where it ends badly.
    """
    from provision.cli import flow

    command = "provision" if set(playbooks) & set(stage_names()) else "verify" if "verify" in playbooks else "node"
    lock: Hold = "shared" if command == "verify" else "alone"
    outcome = flow.play(command, playbooks, request, opened=opened, passwords=passwords, lock=lock)
    if not request.json and (last or outcome.code is not ExitCode.DONE):
        _show(command, opened, outcome, again)
    return outcome


def _show(command: str, opened: Opened, outcome: Outcome, again: str = "") -> None:
    from provision.report.summary import Printer, show_run

    show_run(
        Printer(),
        command,
        outcome.report,
        simulated=opened.simulated,
        log=str(outcome.run.directory),
        judgement=outcome.judgement,
        goes_with=outcome.goes_with,
        next_command="" if outcome.code is ExitCode.DONE else again,
    )


def end(request: Request, outcome: Outcome) -> int:
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
    return end(request, have(request, opened, passwords, state, names, reason, wait=wait))


def have(
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
    outcome, held = waited(request, opened, passwords, state, names, reason, wait)
    slurm, answered = outcome.report.data.get("cluster_status") or {}, outcome.code is ExitCode.DONE
    if answered and held and (wait or ends):
        outcome.code = ExitCode.MACHINE_FAILED
    verified = last_verdicts(opened.path) if state == "listed" else {}
    outcome.document |= {"slurm": slurm, "holding": held} | ({"verified": verified} if state == "listed" else {})
    if request.json:
        return outcome
    if not answered:
        show_run(printer, "node", outcome.report, simulated=opened.simulated)
    rows: list[tuple[str, ...]] = [("NODE", "STATE", "SINCE", "BY", "REASON", "JOBS")]
    jobs = on_each(slurm)
    rows += [row(one, jobs) for one in slurm.get("nodes", ()) if not names or one.get("name") in names]
    if state == "listed":
        proven = [verified.get(cells[0], {}) for cells in rows[1:]]
        more = [("VERIFIED", "DRIVER"), *((_proof(one), one.get("driver", "")) for one in proven)]
        rows = [(*cells, *added) for cells, added in zip(rows, more, strict=True)]
    if len(rows) > 1:
        printer.table(rows)
    if held and state == "drained":
        printer.line(f"still there: {'; '.join(held)}. The nodes take no new jobs")
    return outcome


def waited(
    request: Request,
    opened: Opened,
    passwords: Passwords,
    state: str,
    names: Sequence[str] = (),
    reason: str = "",
    wait: int = 0,
) -> tuple[Outcome, list[str]]:
    """Have the nodes in that state, and wait for their jobs; return the last outcome, and the jobs that are left."""
    from provision.cli import flow

    opened = copied(opened, hosts=(opened.cluster.controller,))
    variables = {
        "slurm_service_node_names": list(names),
        "slurm_service_node_state": state,
        "slurm_service_node_reason": reason,
    }
    request = copied(_told(request, **variables), limit=opened.cluster.controller)
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


def _proof(one: Mapping[str, str]) -> str:
    return f"{one['verdict']} {one['at'][:16].replace('T', ' ')}" if one else ""


def _on(job: Mapping[str, Any]) -> set[str]:
    from provision import hostlist

    return set(hostlist.expand(job["nodes"])) if job.get("nodes") else set()


def _until(job: Mapping[str, Any]) -> str:
    return f"at the latest until {_time(job['ends'])}" if job.get("ends") else "without a limit"


def _time(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
