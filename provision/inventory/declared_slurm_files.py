"""What the inventory adds to Slurm's files beside slurm.conf: other files, and programs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision.errors import ClusterctlError
from provision.slurm.file_lines import wrong_line
from provision.slurm.names import FETCHED, LINES

_SCRIPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}\.sh")
#: Bytes that one file may have: slurmctld sends all of them in one message to each slurmd.
_LONGEST = 262_144
#: Which file another parameter needs: topology/default needs none, and job_container.conf is there.
_NEEDS = {
    ("topologyplugin", "topology/tree"): ("topology.conf", "topology.yaml"),
    ("topologyplugin", "topology/block"): ("topology.conf", "topology.yaml"),
    ("nodefeaturesplugins", "node_features/helpers"): ("helpers.conf",),
}


def files_from(value: Any, release: str) -> dict[str, str]:
    """Return the site's further files by name, each with its text.

    Raises:
        ClusterctlError: one is none that slurmctld hands to the nodes, is ours to write, or cannot be a text file.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ClusterctlError(
            f"slurm_conf_files is {value!r}: it must map names of files to their texts",
            fix="write it in group_vars/all.yml, as 'slurm_conf_files: {helpers.conf: Feature=nps1}'",
        )
    return {str(name): _text(str(name), text, release) for name, text in value.items()}


def _text(name: str, text: Any, release: str) -> str:
    where = f"slurm_conf_files: {name[:70]}"
    if name in ("slurm.conf", "gres.conf", "cgroup.conf"):
        raise ClusterctlError(
            f"{where} is made from the inventory",
            fix="use slurm_conf_parameters, node_gres and slurm_conf_cgroup_parameters",
            entry=("slurm_conf_files", None, name),
        )
    if name not in FETCHED and not _SCRIPT.fullmatch(name):
        raise ClusterctlError(
            f"{where} is no file that nodes fetch from slurmctld",
            fix=f"name one of {', '.join(FETCHED)}, or a script as NAME.sh for Prolog or Epilog",
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
    if name not in FETCHED and not text.startswith("#!/"):
        raise ClusterctlError(
            f"{where} has no interpreter",
            fix="begin the script with a line such as #!/bin/bash",
            entry=("slurm_conf_files", None, name),
        )
    return text


def require_lines(
    files: Mapping[str, str],
    release: str,
    compute: Sequence[str],
    parameters: Mapping[str, str | Sequence[str] | None],
    writable: Sequence[str] | None = None,
) -> None:
    """Refuse files with a line that the daemon which reads it would not take.

    ``compute`` are the compute nodes, ``parameters`` those of slurm.conf, ``writable`` where slurmd can write.

    Raises:
        ClusterctlError: it names the line.
    """
    plugin = next(
        (str(value or "").lower() for key, value in parameters.items() if key.lower() == "topologyplugin"), ""
    )
    for name, text in files.items():
        if wrong := wrong_line(name, text, release, compute, plugin, writable):
            raise ClusterctlError(
                f"slurm_conf_files: {name}, its line {wrong.row}: {wrong.problem}",
                fix=wrong.fix,
                entry=("slurm_conf_files", None, name),
                row=wrong.row,
            )


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
    """Refuse parameters that rest on a file or another parameter, and scripts which no parameter names.

    Raises:
        ClusterctlError: it names the file, and where to write it.
    """
    _require_contained(parameters)
    _require_read(parameters, files)
    named = {program for name in LINES for program in parameters.get(name) or () if not program.startswith("/")}
    if missing := sorted(named - files.keys()):
        raise ClusterctlError(
            f"slurm_conf_parameters names {', '.join(missing)}, which is not in slurm_conf_files",
            fix=f"write the script there, as '{missing[0]}: |', with its lines below",
            said=("slurm_conf_parameters", ""),
        )
    if unused := sorted(name for name in files.keys() - FETCHED.keys() if name not in named):
        raise ClusterctlError(
            f"slurm_conf_files has {', '.join(unused)}, which no Prolog or Epilog of slurm_conf_parameters names",
            fix=f"add 'Prolog: [{unused[0]}]' there, or remove the script",
            entry=("slurm_conf_files", None, unused[0]),
        )
    for name, value in parameters.items():
        needs = _NEEDS.get((name.lower(), value.lower() if isinstance(value, str) else ""))
        if needs and not set(needs) & files.keys():
            raise ClusterctlError(
                f"slurm_conf_parameters: {name}={value} reads {needs[0]}, which is not in slurm_conf_files",
                fix=f"write {needs[0]} there",
                entry=("slurm_conf_parameters", None, name),
            )


#: Which values of which parameters have a file read; with others it lies there unread.
_READ = {
    "topology.conf": ("TopologyPlugin", ("topology/tree", "topology/block", "topology/ring")),
    "helpers.conf": ("NodeFeaturesPlugins", ("node_features/helpers",)),
}


def _require_read(parameters: Mapping[str, str | Sequence[str] | None], files: Mapping[str, str]) -> None:
    """Refuse a file that nothing reads."""
    given = {name.lower(): str(value or "").lower() for name, value in parameters.items()}
    for name, (parameter, values) in _READ.items():
        if name in files and set(given.get(parameter.lower(), "").split(",")).isdisjoint(values):
            raise ClusterctlError(
                f"slurm_conf_files: {name} is read with a {parameter} alone that is not set",
                fix=f"set {parameter}: {values[0]} in slurm_conf_parameters, or remove {name}",
                entry=("slurm_conf_files", None, name),
            )
    own = [given[name] for name in ("jobcontainertype", "namespacetype") if name in given]
    if "job_container.conf" in files and own and not any(value.endswith("tmpfs") for value in own):
        raise ClusterctlError(
            "slurm_conf_files: job_container.conf is read by nothing: jobs share /tmp, as slurm_conf_parameters says",
            fix="remove it, or take JobContainerType out of there",
            entry=("slurm_conf_files", None, "job_container.conf"),
        )
    if {"topology.conf", "topology.yaml"} <= files.keys():
        raise ClusterctlError(
            "slurm_conf_files: beside topology.yaml Slurm does not read topology.conf",
            fix="leave one of them",
            entry=("slurm_conf_files", None, "topology.conf"),
        )


def _require_contained(parameters: Mapping[str, str | Sequence[str] | None]) -> None:
    """Refuse PrologFlags with which Slurm's daemons would not start: a job's own /tmp is held by a step of the job."""
    site = {name.lower(): str(value or "").lower() for name, value in parameters.items()}
    own = [site[name] for name in ("jobcontainertype", "namespacetype") if name in site]
    flags = site.get("prologflags")
    if flags is None or (own and not any(value.endswith("tmpfs") for value in own)):
        return
    words = set(flags.split(","))
    # Slurm makes Contain of each of these: prolog_str2flags in src/common/read_config.c.
    if not words & {"contain", "x11", "runinjob"} or "nohold" in words:
        raise ClusterctlError(
            f"slurm_conf_parameters: PrologFlags is {flags!r}: a job's own /tmp needs Contain, and not NoHold",
            fix="add Contain to PrologFlags, or let jobs share /tmp by 'JobContainerType: null'",
            entry=("slurm_conf_parameters", None, "PrologFlags"),
        )
