"""A user's own job script: the mistakes of public templates in it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from provision.errors import ExitCode


@click.command("lint-job")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")
def lint_job(file: Path, as_json: bool) -> int:
    """Find common mistakes in a job script. Runs and submits nothing.

    FILE is a script for sbatch, or one that srun runs on each node; - is standard input. Exit code 8 means mistakes.

    \b
    Example:
        clusterctl lint-job train.sh
    """
    from provision import job_lint
    from provision.cli.flow import print_json

    found = job_lint.found_in(file)
    code = ExitCode.VERIFICATION_FAILED if found else ExitCode.DONE
    if as_json:
        document = {"schema": "clusterctl/lint-job/1", "command": "lint-job", "exit_code": int(code), "file": str(file)}
        print_json(document | {"findings": [asdict(one) for one in found]})
        return int(code)
    for line in job_lint.lines(file, found):
        click.echo(line)
    return int(code)
