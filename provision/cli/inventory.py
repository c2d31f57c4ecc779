"""Commands that contact no machine: check the inventory, render the configuration."""

from __future__ import annotations

from pathlib import Path

import click

from provision.cli.options import Request, reading_options


@click.command()
@reading_options
@click.option("--ports", "with_ports", is_flag=True, help="Also list every port that machines need from one another.")
def check(request: Request, with_ports: bool) -> int:
    """Validate the inventory and print the cluster that it describes. Contacts no machine.

    Finds unknown groups and variables, wrong types and values, and references that lead nowhere.

    \b
    Examples:
        clusterctl check inventory.ini
        clusterctl check --ports inventory.ini     # for the network's firewall
    """
    from provision import hostlist
    from provision.cli.flow import ask, open_cluster, print_json
    from provision.inventory.declared_images import for_nobody
    from provision.inventory.fetched import fetched
    from provision.inventory.loader import GROUPS, cluster_hosts
    from provision.inventory.ports import ports_from
    from provision.report.cluster import picture
    from provision.report.ports import table
    from provision.report.summary import Printer
    from provision.slurm.conf import require_confinement

    opened = open_cluster(request, ask(request))
    cluster = opened.cluster
    require_confinement(cluster)
    undeclared = sorted(cluster.undeclared)
    left_alone = sorted(opened.inventory.hostvars.keys() - set(cluster_hosts(opened.inventory)))
    if left_alone:
        click.echo(
            f"Warning: {hostlist.fold(left_alone)} left alone: in none of the groups {', '.join(GROUPS)}",
            err=True,
        )
    docker = opened.inventory.hostvars.get(cluster.controller, {}).get("job_docker")
    ports = ports_from(opened.inventory.groups, opened.inventory.hostvars, cluster)
    fetches = fetched(cluster, opened.inventory.hostvars)
    unused = for_nobody(cluster.job_images, cluster.container_runtime, docker)
    if unused:
        click.echo(f"Warning: {unused}", err=True)
    if request.json:
        print_json(
            {
                "schema": "clusterctl/check/1",
                "command": "check",
                "exit_code": 0,
                "simulated": list(cluster.simulated),
                "inventory": str(opened.path),
                "cluster": cluster.name,
                "controller": cluster.controller,
                "compute": [node.name for node in cluster.nodes],
                "left_alone": left_alone,
                "warnings": [unused] if unused else [],
                "undeclared": {name: list(cluster.undeclared[name]) for name in undeclared},
                "fetched": fetches,
                "ports": [port.as_dict() for port in ports],
            }
        )
        return 0
    printer = Printer()
    printer.line(f"{opened.path}: good")
    printer.line(f"cluster {cluster.name}, Slurm {cluster.slurm_version}")
    for title, text in picture(cluster, opened.inventory.groups, fetches):
        printer.line(f"{title:11} {text}")
    if with_ports:
        for line in table([port.as_dict() for port in ports]):
            click.echo(line)
    else:
        click.echo("ports that the machines need from one another: clusterctl check --ports")
    return 0


@click.command()
@reading_options
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the files to this directory.",
)
def render(request: Request, output: Path | None) -> int:
    """Write slurm.conf, gres.conf and Slurm's other files as they would be installed. Contacts no machine.

    Prints the files unless --output names a directory.

    \b
    Example:
        clusterctl render inventory.ini --output rendered/
    """
    from provision.cli.flow import ask, open_cluster, print_json
    from provision.errors import ClusterctlError
    from provision.slurm import render as renderer

    files = renderer.render(open_cluster(request, ask(request)).cluster)
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (output / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ClusterctlError(
                f"the files cannot be written to {output}: {error.strerror}", fix="choose another --output"
            ) from error
    if request.json:
        written = {name: str(output / name) for name in files} if output else {}
        print_json(
            {"schema": "clusterctl/render/1", "command": "render", "exit_code": 0, "files": files, "written": written}
        )
    elif output is not None:
        for name in files:
            click.echo(output / name)
    else:
        for name, text in files.items():
            click.echo(f"### {name}\n{text}")
    return 0
