"""Programs that slurm.conf names, against what the containers see in which Slurm runs them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from provision.errors import ClusterctlError
from provision.model.mounts import Mount, below

#: Run by slurmd or by a job's step, on a node.
_ON_NODES = (
    *("Prolog", "Epilog", "HealthCheckProgram", "TaskEpilog", "TaskProlog", "UnkillableStepProgram"),
    "RebootProgram",
)
#: Run by slurmctld.
_ON_CONTROLLER = (
    *("PrologSlurmctld", "EpilogSlurmctld", "MailProg", "ResumeProgram", "ResumeFailProgram", "SuspendProgram"),
    *("ResvEpilog", "ResvProlog", "SlurmctldPrimaryOffProg", "SlurmctldPrimaryOnProg"),
)
#: What slurmd's container has of the machine whatever the inventory says: the role slurm_service.
_SEEN = ("/home", "/tmp", "/var/tmp", "/var/lib/clusterctl", "/var/spool/slurmd")  # noqa: S108 - nothing is written
_FETCHED = "/run/slurm/conf/"
#: Directories of a machine that jobs see: variables of the role slurm_service, and what they are by themselves.
_SHOWN = {"slurm_service_job_directories": (), "slurm_service_read_only_directories": ("/opt",)}
#: Which files name programs that slurmd runs, or plugins without which it does not start.
_NAMED = {
    "job_container.conf": r"(?:^|\s)(?:InitScript|CloneNSScript|CloneNSEpilog)=(/[^\s#]+)",
    "helpers.conf": r"(?:^|\s)Helper=(/[^\s#]+)",
    "plugstack.conf": r"^\s*required\s+([^\s#]+)",
}
#: What a site adds to Slurm's image, in which there may then be any program.
_ADDED = ("slurm_image_extra_packages", "slurm_image_base", "job_container_packages", "slurm_service_image")
#: Where the image has programs, and those that are in every one.
_OF_IMAGE = ("/bin", "/sbin", "/usr", "/lib")
_STOCK = ("bash", "env", "false", "logger", "sh", "true")
#: What scripts are written for that every image has: what Debian calls essential, and Python.
_IN_IMAGE = re.compile(r"(?:/usr)?/bin/(?:env\s+(?:-\S+\s+)*)?([\w.-]+)")
_INTERPRETERS = re.compile(r"awk|bash|dash|env|mawk|perl|python3(\.\d+)?|rbash|sed|sh")


def require_programs(
    parameters: Mapping[str, str | Sequence[str] | None],
    files: Mapping[str, str],
    mounts: Iterable[Mount],
    controller: Mapping[str, Any],
    nodes: Sequence[Mapping[str, Any]],
) -> None:
    """Refuse programs that no container has in which they are to run: a Prolog that is missing drains every node.

    Args:
        parameters: the site's parameters of slurm.conf.
        files: those of slurm_conf_files.
        mounts: the declared file systems.
        controller: the controller's variables; ``nodes`` are the compute nodes'.

    Raises:
        ClusterctlError: there is such a one.
    """
    added = any(one.get(name) not in (None, "", []) for name in _ADDED for one in (controller, *nodes))
    seen = _seen(mounts, nodes)
    _require_named_in_files(files, seen, added)
    if not added:
        _require_interpreters(files, seen)
    canonical = {name.lower(): name for name in (*_ON_NODES, *_ON_CONTROLLER)}
    named = [(name, canonical[name.lower()], value) for name, value in parameters.items() if name.lower() in canonical]
    programs = [(key, name, one) for key, name, value in named for one in _listed(value)]
    own = {one for _, name, one in programs if name in ("Prolog", "Epilog") and not one.startswith("/")}
    for key, name, program in programs:
        path = _plain(program.strip('"').partition(" ")[0])
        on_nodes = name in _ON_NODES
        if on_nodes and path in own:
            continue
        if path.startswith(_FETCHED) and on_nodes:
            known = path.removeprefix(_FETCHED) in {*own, "job_begin", "job_end", "job_task"}
        else:
            known = on_nodes and (seen is None or any(below(path, one) for one in seen))
        if not known and not _in_image(path, added):
            raise ClusterctlError(
                f"slurm_conf_parameters: {name} is {program[:120]}, which is not in the container of "
                f"{'slurmd' if on_nodes else 'slurmctld'}, where it is to run",
                fix=_fix(name, path, on_nodes=on_nodes),
                entry=("slurm_conf_parameters", None, key),
            )


def _plain(path: str) -> str:
    """Return a path without its '..'; a bare name, which is one of slurm_conf_files, as it is."""
    return posixpath.normpath(path) if path.startswith("/") else path


def _in_image(path: str, added: bool) -> bool:
    """Tell whether Slurm's image may have a program: one of every image's, or any where a site has ``added`` to it."""
    known = added or path.rpartition("/")[2] in _STOCK
    return known and (not path.startswith("/") or any(below(path, one) for one in _OF_IMAGE))


def _require_named_in_files(files: Mapping[str, str], seen: Sequence[str] | None, added: bool) -> None:
    """Refuse programs and plugins that files name, where slurmd's container has them not."""
    for file, pattern in _NAMED.items():
        for row, line in enumerate(files.get(file, "").splitlines(), start=1):
            for path in map(_plain, re.findall(pattern, line, re.IGNORECASE)):
                if seen is not None and not _in_image(path, added) and not any(below(path, one) for one in seen):
                    raise ClusterctlError(
                        f"slurm_conf_files: {file}, its line {row}: {path[:120]} is not in the container of slurmd",
                        fix="put it where slurmd sees it on all nodes: /opt, or a file system of cluster_mounts",
                        entry=("slurm_conf_files", None, file),
                        row=row,
                    )


def _require_interpreters(files: Mapping[str, str], seen: Sequence[str] | None) -> None:
    """Refuse scripts whose interpreter no container has: a Prolog that cannot be run drains the node."""
    for file, text in files.items():
        line = text.partition("\n")[0].removeprefix("#!").strip() if file.endswith(".sh") else ""
        found = _IN_IMAGE.match(line)
        known = _INTERPRETERS.fullmatch(found[1]) if found else seen is None or any(below(line, one) for one in seen)
        if line and not known:
            raise ClusterctlError(
                f"slurm_conf_files: {file}, its line 1: {line[:70]!r} is not in Slurm's image: the script would fail, "
                "and the node be drained",
                fix="write it for bash or python3, or have the interpreter's package put into the image "
                "(slurm_image_extra_packages)",
                entry=("slurm_conf_files", None, file),
                row=1,
            )


def _fix(name: str, path: str, *, on_nodes: bool) -> str:
    package = "have its package put into Slurm's image (slurm_image_extra_packages)"
    script = path.rpartition("/")[2].removesuffix(".sh") + ".sh"
    if not on_nodes:
        return package
    if name in ("Prolog", "Epilog") and re.fullmatch(r"[A-Za-z0-9][\w.-]*", script):
        return f"write '{name}: {script}', and its text as {script} in slurm_conf_files"
    return (
        f"put it where slurmd sees it on all nodes: /opt, a file system of cluster_mounts; or {package}; or name it in "
        f"Prolog, too, as {script} of slurm_conf_files, and here as {_FETCHED}{script}"
    )


def _listed(value: str | Sequence[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def _seen(mounts: Iterable[Mount], nodes: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """Return what slurmd sees of each node, or of any that has it; None where only Ansible knows."""
    found = [*_SEEN, *(mount.path for mount in mounts)]
    for name, default in _SHOWN.items():
        shown = _shown(name, default, nodes)
        if shown is None:
            return None
        found += shown
    return found


def _shown(name: str, default: Sequence[str], nodes: Iterable[Mapping[str, Any]]) -> list[str] | None:
    found: list[str] = []
    for value in {repr(one.get(name)): one.get(name, default) for one in nodes}.values():
        if "{{" in str(value):
            return None
        found += [str(word).strip() for word in (value.split(",") if isinstance(value, str) else value or ())]
    return found
