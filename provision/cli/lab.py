"""The lab: simulated machines on this computer."""

from __future__ import annotations

import click

from provision.cli.options import json_option

_NAME = click.argument("name", default="lab", metavar="[NAME]")


@click.group()
def lab() -> None:
    """Create and remove a cluster of simulated machines on this computer.

    \b
    Example:
        clusterctl lab up && clusterctl provision && clusterctl verify
    """


@lab.command()
@_NAME
@click.option("--nodes", type=click.IntRange(1, 64), default=2, show_default=True, help="Number of compute nodes.")
@click.option("--login", type=click.IntRange(0, 8), default=0, show_default=True, help="Number of login hosts.")
@click.option(
    "--gpus", type=click.IntRange(0, 16), default=2, show_default=True, help="Number of simulated GPUs a node."
)
@click.option(
    "--kind",
    type=click.Choice(["container", "mixed", "vm"]),
    help="Kind of machines: containers, virtual machines (vm), or virtual machines as nodes beside a container as"
    " controller (mixed). Default: the lab's present kind, else container.",
)
@click.option(
    "--site",
    is_flag=True,
    help="Set containers up as a site has its machines: internet only through a proxy, a firewall, SSH on port 2222,"
    " sudo with a password, Debian 13 beside 12, a container engine in use.",
)
@json_option
def up(name: str, nodes: int, login: int, gpus: int, kind: str | None, site: bool, json: bool) -> int:
    """Create a lab, or complete an existing one, and print its inventory.

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
        asked = " -K    # the sudo password is: site" if labs.is_site(name) else ""
        click.echo(f"next: clusterctl provision {inventory}{asked}", err=True)
    return 0


@lab.command()
@_NAME
@json_option
def down(name: str, json: bool) -> int:
    """Remove a lab and everything that it created. Caches stay.

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
    """Show a lab's machines, their addresses and states, and what the lab sets up on them.

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
@click.option("--lab", "name", default="lab", show_default=True, metavar="NAME", help="Name of the lab.")
@click.argument("target", metavar="[USER@]MACHINE")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def ssh(name: str, target: str, command: tuple[str, ...]) -> int:
    """Log in to a machine of a lab with the lab's key. The default user may become root.

    \b
    Examples:
        clusterctl lab ssh head
        clusterctl lab ssh ada@head srun --gres=gpu:1 hostname
    """
    import os

    from provision.lab import labs

    words = labs.login(name, target, command)
    os.execvp(words[0], words)  # noqa: S606 - ssh takes this one's place, so that its terminal and exit code are ours
