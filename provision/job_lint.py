"""Look into a user's job script: read it, have shfmt read it, and say what was found. Standard library only.

Machines where users log in have this as their command ``lint-job``, and have neither Click nor this package.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from provision.errors import ClusterctlError, ExitCode
from provision.slurm.job_mistakes import Finding, findings
from provision.slurm.job_script import UnreadableError

#: Bytes of a job script that are read; Slurm takes 4 MiB (max_script_size).
_LIMIT = 4 * 1024 * 1024
#: Seconds that shfmt may take; a script of a thousand lines takes it some milliseconds.
_SECONDS = 20


def found_in(file: Path) -> list[Finding]:
    """Return the mistakes in a job script; - is standard input."""
    return findings(_text(file), syntax_tree)


def lines(file: Path, found: Sequence[Finding]) -> Iterator[str]:
    """Yield what a person reads of them."""
    for one in found:
        yield f"{file}:{one.line}: {one.name}: {one.problem}"
        yield f"    effect: {one.effect}"
        yield f"    better: {one.better}"
    yield f"{file}: {len(found)} {'mistake' if len(found) == 1 else 'mistakes'}" if found else f"{file}: good"


def main(words: Sequence[str]) -> int:
    """Be the command ``lint-job FILE...`` where users log in."""
    if not words or (words[0] != "-" and words[0].startswith("-")):
        print(
            "lint-job FILE...: mistakes in job scripts that were posted as the cause of a failure; - is standard input."
        )
        print("Nothing is run or submitted. Exit code 8 if there are any.")
        return int(ExitCode.DONE if words[:1] in (["-h"], ["--help"]) else ExitCode.BAD_REQUEST)
    code = ExitCode.DONE
    for file in map(Path, words):
        try:
            found = found_in(file)
        except ClusterctlError as error:
            print(f"lint-job: {error.problem}. Fix: {error.fix}", file=sys.stderr)
            return int(error.exit_code)
        print("\n".join(lines(file, found)))
        code = ExitCode.VERIFICATION_FAILED if found else code
    return int(code)


def command() -> None:
    """End as :func:`main` does."""
    raise SystemExit(main(sys.argv[1:]))


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
    # Of an environment of Python's, or of Slurm's commands where users log in.
    beside = (Path(sys.executable).with_name("shfmt"), Path(sys.argv[0]).resolve().with_name("shfmt"))
    shfmt = next((str(path) for path in beside if path.exists()), None) or shutil.which("shfmt")
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
