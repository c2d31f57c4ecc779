"""The cluster's figures and alerts: how to reach them."""

from __future__ import annotations

import shlex

import click

from provision.cli.options import Request, reading_options
from provision.errors import ClusterctlError

#: Where Prometheus listens, on its own machine alone (roles/monitoring).
PORT = 9090


@click.group()
def monitor() -> None:
    """Reach what Prometheus knows of the cluster.

    \b
    Example:
        clusterctl monitor open inventory.ini
    """


@monitor.command("open")
@reading_options
def open_it(request: Request) -> int:
    """Print the address of the page, and the ssh command that leads there. Contacts no machine.

    \b
    Example:
        clusterctl monitor open inventory.ini
    """
    from provision.cli.flow import ask, open_cluster, print_json
    from provision.ssh.target import Target

    opened = open_cluster(request, ask(request))
    hosts = opened.inventory.groups.get("monitoring", ())
    if not hosts:
        raise ClusterctlError(
            "no machine is in [monitoring], so nothing watches this cluster",
            fix="name one there, for example the controller, then: clusterctl provision monitoring",
        )
    target = Target.from_hostvars(hosts[0], opened.inventory.hostvars[hosts[0]])
    if target.skip:
        raise ClusterctlError(f"{hosts[0]}: {target.skip}", fix=f"forward its port {PORT} as you reach it")
    forward = f"{PORT}:127.0.0.1:{PORT}"
    command = shlex.join(["ssh", "-N", "-L", forward, *target.arguments(), target.address])
    address = f"http://127.0.0.1:{PORT}"
    page = f"{address}/consoles/clusterctl.html"
    if request.json:
        print_json(
            {
                "schema": "clusterctl/monitor-open/1",
                "command": "monitor open",
                "exit_code": 0,
                "host": hosts[0],
                "address": address,
                "page": page,
                "ssh": command,
            }
        )
    else:
        click.echo(f"{command}\n{page}    # while that runs")
    return 0
