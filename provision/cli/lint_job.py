"""A user's own job script: the mistakes of public templates in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from provision.errors import ClusterctlError, ExitCode

#: Bytes of a job script that are read; Slurm takes 4 MiB (max_script_size).
_LIMIT = 4 * 1024 * 1024
#: Seconds that shfmt may take; a script of a thousand lines takes it some milliseconds.
_SECONDS = 20


@click.command("lint-job")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")
def lint_job(file: Path, as_json: bool) -> int:
    """Look for fifteen mistakes that people posted as the cause of their failure. Nothing is run or submitted.

    FILE is a script for sbatch, or one that srun runs on each node; - is standard input. Exit code 8 if there are any.

    \b
    Example:
        clusterctl lint-job train.sh
    """
    from provision.cli.flow import print_json
    from provision.slurm.job_mistakes import findings

    found = findings(_text(file), syntax_tree)
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
    first = data.split(b"\n", 1)[0]
    problem = ""
    if len(data) > _LIMIT:
        problem = "it is larger than the 4 MiB that Slurm takes"
    elif not data.strip():
        problem = "it is empty"
    elif b"\0" in data:
        problem = "it is no text"
    elif b"\r\n" in data:
        problem = "its lines end as on Windows, which sbatch refuses"
    elif first.startswith(b"#!") and not re.search(rb"\b(ba|da|z|k)?sh\b", first):
        problem = f"it is for {first[2:].decode(errors='replace').strip()}; only shell scripts are looked into"
    if problem:
        raise ClusterctlError(f"{file}: {problem}", fix="name the script that sbatch or srun runs")
    return data.decode("utf-8", errors="replace")


def syntax_tree(text: str) -> dict[str, Any]:
    """Return a script's syntax tree, as shfmt reads it."""
    from provision.slurm.job_script import UnreadableError

    beside = Path(sys.executable).with_name("shfmt")
    shfmt = str(beside) if beside.exists() else shutil.which("shfmt")
    if shfmt is None:
        raise ClusterctlError(
            "lint-job needs shfmt, which is not here", fix="pip install shfmt-py, or apt install shfmt"
        )
    try:
        done = subprocess.run(
            [shfmt, "-ln=bash", "--to-json"],
            input=text.encode(errors="replace"),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnreadableError(1, f"shfmt has not read it in {_SECONDS} seconds") from error
    if done.returncode:
        told = re.search(r"(\d+):\d+: (.*)", done.stderr.decode(errors="replace"))
        raise (
            UnreadableError(int(told[1]), told[2])
            if told
            else UnreadableError(1, f"shfmt ended with {done.returncode}")
        )
    tree: dict[str, Any] = json.loads(done.stdout)
    return tree
