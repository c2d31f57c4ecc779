"""Compute nodes of a running cluster: list, drain, resume, reboot, replace, add, remove."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from provision.cli import node_states
from provision.cli.complete import stage_names
from provision.cli.node_states import OURS, Work
from provision.cli.options import Request, ansible_options, inventory_argument, timeout_option
from provision.cli.verify import state_word
from provision.errors import ClusterctlError, ExitCode
from provision.slurm.names import NEW_NODES

if TYPE_CHECKING:
    from provision.cli.judged import Outcome
    from provision.runner.journal_lock import Hold
    from provision.ssh.target import Target

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
    work = Work.begin(request)
    outcome = node_states.ask(work)
    node_states.show_all(work, outcome)
    return end(request, outcome)


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
    work = _begin(request, names := _names(nodes))
    return end(request, node_states.drain(work, names, f"{OURS}{reason}", wait))


@node.command()
@_NODES
@ansible_options
def resume(request: Request, nodes: str) -> int:
    """Give drained nodes back to Slurm. A drain that an administrator made with scontrol stays.

    \b
    Example:
        clusterctl node resume node[1-4]
    """
    work = _begin(request, names := _names(nodes))
    return end(request, node_states.give_back(work, "resumed", names, OURS))


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
    names, again = _names(nodes), f"clusterctl node add {nodes}"
    work = _begin(request, names)
    done = node_states.ask(work)
    if done.code is not ExitCode.DONE:
        _show("node", work, done, again)
        return end(request, done)
    there = done.report.data["cluster_status"]["nodes"]
    require_new(there, names)
    alone = [stage for stage in stage_names() if stage != "slurm"]
    unknown = sorted(set(names) - {one["name"] for one in there})
    work = work.told(cluster_test_reservation=NEW_NODES)
    joining = work.on(names).told(slurm_service_node_names=unknown)
    done = _play(joining, ["join", *alone], again, last=False)
    if done.code is not ExitCode.DONE:
        return end(request, done)
    # Once more, as hardware has been discovered.
    work = work.on_all()
    reserving = work.told(slurm_service_node_names=names, slurm_service_node_state="reserved")
    done = _play(reserving, EVERYWHERE, again, last=False)
    # Another machine that failed keeps no node out of the cluster.
    if not _done_on(done, {work.opened.cluster.controller, *names}):
        return end(request, done)
    verified = _play(work.on(names), ["verify"], again)
    if verified.code is ExitCode.DONE:
        released = node_states.give_back(work, "released", names)
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
    from provision.inventory.removed import REMOVED, move, write

    names, again = _names(nodes), f"clusterctl node remove {nodes}"
    work = Work.begin(request)
    there = [name for name in names if name not in work.opened.inventory.groups.get(REMOVED, ())]
    _require_nodes(work, there)
    if there and drains:
        done = node_states.drain(work, there, f"{OURS}remove", timeout, empty=True)
        if done.code is not ExitCode.DONE:
            return end(request, done)
    before = move(work.opened.path, there) if there else {}
    try:
        work = work.on_all()
        done = _play(work, EVERYWHERE, again)
    except ClusterctlError:
        write(before)
        raise
    if done.code is ExitCode.PREFLIGHT_REFUSED:
        write(before)
    # Another machine that failed keeps no node in the cluster.
    if not _done_on(done, {work.opened.cluster.controller}):
        return end(request, done)
    wiped = _play(work.on(names), ["reset"])
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


def _begin(request: Request, names: Sequence[str]) -> Work:
    work = Work.begin(request)
    _require_nodes(work, names)
    return work


def _require_nodes(work: Work, names: Sequence[str]) -> None:
    known = {node.name for node in work.opened.cluster.nodes}
    if unknown := [name for name in names if name not in known]:
        raise ClusterctlError(
            f"{unknown[0]} is no compute node of {work.opened.path}", fix="clusterctl node list names them"
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

    work = _begin(request, names := _names(nodes))
    done = node_states.drain(work, names, f"{OURS}{reason}", wait, empty=True)
    if done.code is not ExitCode.DONE:
        return end(request, done)
    for target in flow.targets_of(work.opened.inventory, names, request.user):
        before(target)
    done = _play(work.on(names), playbooks, again)
    if done.code is ExitCode.DONE:
        done = node_states.give_back(work, "resumed", names, OURS)
    else:
        click.echo(f"{nodes} takes no jobs. To give it back as it is: clusterctl node resume {nodes}", err=True)
    return end(request, done)


def _play(work: Work, playbooks: Sequence[str], again: str = "", *, last: bool = True) -> Outcome:
    """Run playbooks on machines, and show what they did; ``again`` is the command that goes on.

    One that is not the ``last`` of a command is shown where it ends badly.
    """
    from provision.cli import flow

    command = "provision" if set(playbooks) & set(stage_names()) else "verify" if "verify" in playbooks else "node"
    lock: Hold = "shared" if command == "verify" else "alone"
    outcome = flow.play(command, playbooks, work.request, opened=work.opened, passwords=work.passwords, lock=lock)
    if not work.request.json and (last or outcome.code is not ExitCode.DONE):
        _show(command, work, outcome, again)
    return outcome


def _show(command: str, work: Work, outcome: Outcome, again: str = "") -> None:
    from provision.report.summary import Printer, show_run

    show_run(
        Printer(),
        command,
        outcome.report,
        simulated=work.opened.simulated,
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
