"""The lab: simulated machines on this computer."""

from __future__ import annotations

import click

from provision.cli.options import json_option

_NAME = click.argument("name", default="lab", metavar="[NAME]")


@click.group()
def lab() -> None:
    """Make and remove a cluster of simulated machines on this computer.

    \b
    Example:
        clusterctl lab up && clusterctl provision && clusterctl verify
    """


@lab.command()
@_NAME
@click.option("--nodes", type=click.IntRange(1, 64), default=2, show_default=True, help="Compute machines.")
@click.option("--login", type=click.IntRange(0, 8), default=0, show_default=True, help="Machines for logins alone.")
@click.option("--gpus", type=click.IntRange(0, 16), default=2, show_default=True, help="Simulated GPUs on each.")
@click.option(
    "--kind",
    type=click.Choice(["container", "mixed", "vm"]),
    help="Containers, virtual machines with their own kernel, or such nodes beside a controller that is a container."
    " Default: what the lab is made of, else containers.",
)
@click.option(
    "--site",
    is_flag=True,
    help="Containers as vendors and a site leave machines: a proxy as the only way out, a firewall, SSH at port 2222,"
    " sudo with a password, Debian 13 beside 12, an engine that is in use.",
)
@json_option
def up(name: str, nodes: int, login: int, gpus: int, kind: str | None, site: bool, json: bool) -> int:
    """Make a lab, or complete one; print its inventory.

    \b
    Examples:
        clusterctl lab up --nodes 2 --gpus 2
        clusterctl lab up vms --kind vm
        clusterctl lab up site --site
    """
    from provision.cli.flow import print_json
    from provision.lab import labs

    inventory = labs.up(name, nodes=nodes, gpus=gpus, login=login, kind=kind or "", site=site)
    if json:
        made = {"name": name, "kind": labs.recorded_kind(name), "inventory": str(inventory)}
        print_json({"schema": "clusterctl/lab-up/1", "command": "lab up", "exit_code": 0, **made})
    else:
        click.echo(f"{inventory}")
        asked = " -K    # what sudo asks for is: site" if labs.is_site(name) else ""
        click.echo(f"next: clusterctl provision {inventory}{asked}", err=True)
    return 0


@lab.command()
@_NAME
@json_option
def down(name: str, json: bool) -> int:
    """Remove a lab and everything that it made; caches stay.

    \b
    Example:
        clusterctl lab down
    """
    from provision.cli.flow import print_json
    from provision.lab import labs

    labs.down(name)
    if json:
        print_json({"schema": "clusterctl/lab-down/1", "command": "lab down", "exit_code": 0, "name": name})
    return 0


@lab.command()
@_NAME
@json_option
def status(name: str, json: bool) -> int:
    """Show a lab's machines, their addresses and states, and what the lab gives them.

    \b
    Example:
        clusterctl lab status
    """
    from provision.cli.flow import print_json
    from provision.lab import labs
    from provision.report.summary import Printer

    state = labs.status(name)
    if json:
        print_json({"schema": "clusterctl/lab-status/1", "command": "lab status", "exit_code": 0, **state})
    else:
        machines = state.get("machines", [])
        printer = Printer()
        rows = [
            tuple(str(machine.get(key, "")) for key in ("name", "address", "state", "kind")) for machine in machines
        ]
        if rows:
            printer.table([("MACHINE", "ADDRESS", "STATE", "KIND"), *rows])
            given = [tuple(one[key] for key in ("what", "how", "site")) for one in state["given"]]
            printer.table([("THE LAB GIVES THEM", "HOW", "A SITE'S ADMINISTRATOR"), *given])
        printer.line(f"inventory: {state['inventory']}" if state.get("inventory") else f"there is no lab '{name}'")
    return 0


class _WithCommand(click.Command):
    """A command whose last words are those of another one, with options of its own."""

    allow_interspersed_args = False


@lab.command(cls=_WithCommand)
@click.option("--lab", "name", default="lab", show_default=True, metavar="NAME", help="Whose machine it is.")
@click.argument("target", metavar="[USER@]MACHINE")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(name: str, target: str, command: tuple[str, ...]) -> int:
    """Log in to a machine of a lab, with the lab's key; without a user, as the one who may become root.

    \b
    Examples:
        clusterctl lab ssh head
        clusterctl lab ssh ada@head srun --gres=gpu:1 hostname
    """
    import os

    from provision.lab import labs

    words = labs.login(name, target, command)
    os.execvp(words[0], words)  # noqa: S606 - ssh takes this one's place, so that its terminal and exit code are ours
