"""A user's own job script: the mistakes of public templates in it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from provision.errors import ClusterctlError, ExitCode

#: Bytes of a job script that are read; Slurm takes 4 MiB (max_script_size).
_LIMIT = 4 * 1024 * 1024


@click.command("lint-job")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")
def lint_job(file: Path, as_json: bool) -> int:
    """Look for twenty mistakes of public templates, and unclosed quotes, in a job script. Nothing is run or submitted.

    FILE is a script for sbatch, or one that srun runs on each node; - is standard input. Exit code 8 if there are any.

    \b
    Example:
        clusterctl lint-job train.sh
    """
    from provision.cli.flow import print_json
    from provision.slurm.jobs.lint import findings

    found = findings(_text(file))
    code = ExitCode.VERIFICATION_FAILED if found else ExitCode.DONE
    if as_json:
        document = {"schema": "clusterctl/lint-job/1", "command": "lint-job", "exit_code": int(code), "file": str(file)}
        print_json(document | {"findings": [asdict(one) for one in found]})
        return int(code)
    for one in found:
        click.echo(f"{file}:{one.line}: {one.name}: {one.problem}")
        click.echo(f"    effect: {one.effect}")
        click.echo(f"    better: {one.better}")
    click.echo(f"{file}: {len(found)} {'mistake' if len(found) == 1 else 'mistakes'}" if found else f"{file}: good")
    return int(code)


def _text(file: Path) -> str:
    """Read a job script; refuse what sbatch would."""
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(_LIMIT + 1)
        else:
            with file.open("rb") as stream:
                data = stream.read(_LIMIT + 1)
    except OSError as error:
        raise ClusterctlError(
            f"{file} cannot be read: {error.strerror}", fix="name a file that you may read"
        ) from error
    from provision.slurm.jobs.shell import for_a_shell

    first = data.split(b"\n", 1)[0]
    problem = ""
    if len(data) > _LIMIT:
        problem = "it is larger than the 4 MiB that Slurm takes"
    elif not data.strip():
        problem = "it is empty"
    elif b"\0" in data:
        problem = "it is no text"
    elif b"\r" in first:
        problem = "its lines end as on Windows, which sbatch refuses"
    elif first.startswith(b"#!") and not for_a_shell(named := first.decode(errors="replace")):
        problem = f"it is for {named[2:].strip()}; only shell scripts are looked into"
    if problem:
        raise ClusterctlError(f"{file}: {problem}", fix="name the script that sbatch or srun runs")
    return data.decode("utf-8", errors="replace")
