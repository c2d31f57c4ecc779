"""What the inventory adds to Slurm's files beside slurm.conf: other files, and programs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision.errors import ClusterctlError
from provision.slurm.names import FETCHED, LINES, SCRIPTS

_SCRIPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}\.sh")
#: Bytes that one file may have: slurmctld sends all of them in one message to each slurmd.
_LONGEST = 262_144


def files_from(value: Any, release: str) -> dict[str, str]:
    """Return the site's further files by name, each with its text.

    Raises:
        ClusterctlError: one is none that slurmctld hands to the nodes, is ours to write, or cannot be a text file.
    """
    return {str(name): _text(str(name), text, release) for name, text in (value or {}).items()}


def _text(name: str, text: Any, release: str) -> str:
    where = f"slurm_conf_files: {name[:70]}"
    if name in ("slurm.conf", "gres.conf", "cgroup.conf"):
        raise ClusterctlError(
            f"{where} is made from the inventory",
            fix="use slurm_conf_parameters, node_gres and slurm_conf_cgroup_parameters",
            entry=("slurm_conf_files", None, name),
        )
    known = sorted({*FETCHED, *SCRIPTS})
    if name not in known and not _SCRIPT.fullmatch(name):
        raise ClusterctlError(
            f"{where} is no file that Slurm's daemons read",
            fix=f"name one of {', '.join(known)}, or a script as NAME.sh for Prolog or Epilog",
            entry=("slurm_conf_files", None, name),
        )
    if release < FETCHED.get(name, ""):
        raise ClusterctlError(
            f"{where} is not read by Slurm {release}: it came with {FETCHED[name]}",
            fix=f"remove {name}",
            entry=("slurm_conf_files", None, name),
        )
    if not isinstance(text, str) or not text.strip() or len(text.encode()) > _LONGEST or "\0" in text:
        raise ClusterctlError(
            f"{where} must be the file's text, {_LONGEST} bytes at most",
            fix=f"write it as a block: '{name}: |', with the lines of the file below, further in",
            entry=("slurm_conf_files", None, name),
        )
    if text.startswith("\ufeff"):
        raise ClusterctlError(
            f"{where} begins with a byte order mark, which Slurm takes for a part of the first word",
            fix="save it as UTF-8 without byte order mark",
            entry=("slurm_conf_files", None, name),
        )
    if "\r" in text:
        raise ClusterctlError(
            f"{where} has lines that end as Windows ends them: a script's interpreter would not be found",
            fix="save it with line feeds alone (dos2unix)",
            entry=("slurm_conf_files", None, name),
        )
    if _SCRIPT.fullmatch(name) and not text.startswith("#!/"):
        raise ClusterctlError(
            f"{where} has no interpreter",
            fix="begin the script with a line such as #!/bin/bash",
            entry=("slurm_conf_files", None, name),
        )
    return text


def lines_from(name: str, key: str, value: Any, release: str) -> Any:
    """Return the programs of a parameter such as Prolog as a list, in the order in which Slurm runs them.

    ``key`` is its name as the inventory spells it.

    Raises:
        ClusterctlError: it is no list of paths, or this release runs one program only, and that is ours.
    """
    programs = list(value) if isinstance(value, list | tuple) else [value]
    if name in ("Prolog", "Epilog") and release < LINES[name]:
        raise ClusterctlError(
            f"slurm_conf_parameters: Slurm {release} runs one {name}, and that is the cluster's own",
            fix=f"remove {name}, or use Slurm {LINES[name]} or newer",
            entry=("slurm_conf_parameters", None, key),
        )
    if len(programs) > 1 and release < LINES[name]:
        raise ClusterctlError(
            f"slurm_conf_parameters: Slurm {release} runs one {name}",
            fix="leave one of them",
            entry=("slurm_conf_parameters", None, key),
        )
    for program in programs:
        # slurmctld's own are not run without a whole path: src/common/run_command.c.
        script = isinstance(program, str) and _SCRIPT.fullmatch(program) and not name.endswith("Slurmctld")
        if not isinstance(program, str) or not (script or program.startswith("/")):
            what = "" if name.endswith("Slurmctld") else ", or a script of slurm_conf_files"
            raise ClusterctlError(
                f"slurm_conf_parameters: {name} is {program!r}: it must be a path in the daemon's container{what}",
                fix="give the whole path" + (what and ", or NAME.sh with its text in slurm_conf_files"),
                entry=("slurm_conf_parameters", None, key),
            )
    return programs


def require_files(parameters: Mapping[str, str | Sequence[str] | None], files: Mapping[str, str]) -> None:
    """Refuse parameters whose script the inventory does not have, and scripts which no parameter names.

    Raises:
        ClusterctlError: it names the file, and where to write it.
    """
    named = {program for name in LINES for program in parameters.get(name) or () if not program.startswith("/")}
    if missing := sorted(named - files.keys()):
        raise ClusterctlError(
            f"slurm_conf_parameters names {', '.join(missing)}, which is not in slurm_conf_files",
            fix=f"write the script there, as '{missing[0]}: |', with its lines below",
            said=("slurm_conf_parameters", ""),
        )
    if unused := sorted(name for name in files if _SCRIPT.fullmatch(name) and name not in named):
        raise ClusterctlError(
            f"slurm_conf_files has {', '.join(unused)}, which no Prolog or Epilog of slurm_conf_parameters names",
            fix=f"add 'Prolog: [{unused[0]}]' there, or remove the script",
            entry=("slurm_conf_files", None, unused[0]),
        )
    scripts = {parameter.lower(): script for script, parameter in SCRIPTS.items()}
    for name, value in parameters.items():
        words = value.lower().split(",") if isinstance(value, str) else ()
        script = scripts.get(name.lower(), "")
        if script and script not in files and any(word.rpartition("/")[2] == "lua" for word in words):
            raise ClusterctlError(
                f"slurm_conf_parameters: {name} is {value}, which runs {script}: it is not in slurm_conf_files",
                fix=f"write the script there, as '{script}: |', with its lines below",
                entry=("slurm_conf_parameters", None, name),
            )
