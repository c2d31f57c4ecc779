"""A job: what it had, what it used, and what it wasted."""

from __future__ import annotations

import json as json_module
from dataclasses import replace

import click

from provision.cli.options import Request, ansible_options
from provision.errors import ClusterctlError


@click.command()
@click.argument("name", metavar="JOB")
@ansible_options
def job(request: Request, name: str) -> int:
    """Show what a job had and used: GPUs, processors, memory, network and file systems; and what it wasted.

    JOB is its number, 42_3 for one of an array. Asks Slurm on the controller, and Prometheus on the host of monitoring.
    Users ask for their own jobs with seff.

    \b
    Example:
        clusterctl job 42 -i inventory.ini
    """
    from provision.cli import flow
    from provision.report import job as report
    from provision.report.summary import Printer, show_run
    from provision.slurm.job_use import JOB

    if not JOB.fullmatch(name):
        raise ClusterctlError(f"{name!r} is no job's number", fix="name one as squeue and sacct do: 42, or 42_3")
    passwords = flow.ask(request)
    opened = flow.open_cluster(request, passwords)
    opened = replace(opened, hosts=(opened.cluster.controller,))
    asks = (*request.extra_vars, json_module.dumps({"monitoring_job": name}))
    request = replace(request, limit=opened.cluster.controller, extra_vars=asks)
    outcome = flow.play("job", ["job"], request, opened=opened, passwords=passwords, lock=None, quiet=True)
    printer, told = Printer(), outcome.report.data.get("cluster_status")
    if told is None:
        if request.json:
            flow.print_json(outcome.document)
        else:
            show_run(printer, "job", outcome.report, simulated=opened.simulated)
        return int(outcome.code)
    watchers = opened.inventory.groups.get("monitoring", ())
    found = report.found(told, name, watchers[0] if watchers else "")
    if request.json:
        flow.print_json(outcome.document | report.as_document(found))
    else:
        report.show(printer, found)
    return int(outcome.code)
