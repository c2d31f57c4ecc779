"""Is every variable of the inventory spelt right and of the right type? Ansible takes any name without a word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from provision import hostlist
from provision.content import ROOT
from provision.errors import ClusterctlError
from provision.inventory.loader import Inventory
from provision.inventory.plain import templated
from provision.inventory.where import written
from provision.model.numbers import whole

Option = Mapping[str, Any]

# From this similarity on, two names are taken for one and the same misspelt: node_cpu and node_cpus are .94 alike,
# node_type and node_tmp_disk .64.
_ALIKE = 0.85
# Variables that begin like ours and belong to others: Prometheus' exporter is installed by many sites.
_NOT_OURS = ("node_exporter_",)
_PROXY = "write cluster_proxy: {http: ..., no_proxy: ...} under [all:vars]"
_USERS_REGISTRY = "leave it out: users push to the site's registry, or share archives (--container-image=./IMAGE.tar)"
#: Names that nothing reads here, and what to do instead: an environment's, and those of earlier releases.
INSTEAD = {
    **dict.fromkeys(("http_proxy", "https_proxy", "no_proxy", "all_proxy"), _PROXY),
    "container_images_users": _USERS_REGISTRY,
    "container_images_users_port": _USERS_REGISTRY,
    "container_images_users_auth_port": _USERS_REGISTRY,
    "container_images_users_size": _USERS_REGISTRY,
    "container_images_users_free": _USERS_REGISTRY,
    "container_images_users_layer": _USERS_REGISTRY,
    "job_lint": "leave it out: sbatch no longer looks into scripts; 'clusterctl lint-job FILE' does",
}
_YES_OR_NO = frozenset({"yes", "no", "true", "false", "on", "off", "y", "n", "t", "f", "1", "0", "1.0", "0.0"})
# Those of Ansible's own variables that are written by hand, and so can be misspelt.
_CONNECTION = frozenset(
    """
    ansible_host ansible_port ansible_user ansible_password ansible_connection ansible_timeout ansible_shell_type
    ansible_shell_executable ansible_python_interpreter ansible_become ansible_become_method ansible_become_user
    ansible_become_password ansible_become_pass ansible_become_exe ansible_become_flags ansible_ssh_pass
    ansible_ssh_private_key_file ansible_ssh_common_args ansible_ssh_extra_args ansible_ssh_host ansible_ssh_port
    ansible_ssh_user ansible_ssh_host_key_checking ansible_ssh_pipelining ansible_ssh_retries ansible_ssh_executable
    ansible_sftp_extra_args ansible_scp_extra_args ansible_remote_tmp ansible_pipelining ansible_group_priority
    ansible_ssh_timeout ansible_host_key_checking
    """.split()  # noqa: SIM905 - read as a text, not as a list of quotes
)


def require_known(inventory: Inventory) -> None:
    """Refuse misspelt variables and values of the wrong type, all of them in one message.

    ``node_*`` is ours. Names that are like none of ours are the site's own and pass; so do values with templates, which
    only the run can judge.

    Raises:
        ClusterctlError: with one line for each problem, the first five of them, and where in the files it is.
    """
    problems = list(_problems(inventory))
    if problems:
        told = [_placed(inventory.path, one) for one in problems[:5]]
        if len(problems) > len(told):
            told.append(f"and {len(problems) - len(told)} more")
        raise ClusterctlError("\n".join(told), fix="; ".join(dict.fromkeys(one.fix for one in problems[:5])))


@cache
def _of_the_site() -> Mapping[str, Option]:
    """Return the variables that belong to no role, with their specifications."""
    return dict(_read(Path(__file__).with_name("site_variables.yml"))["options"])


def site_default(name: str) -> Any:
    """Return what a variable of the site's is where the inventory leaves it out."""
    return _site_defaults()[name]


@cache
def _site_defaults() -> Mapping[str, Any]:
    return _read(ROOT / "roles/cluster/defaults/main.yml")


@cache
def options() -> Mapping[str, Option]:
    """Return every variable that has a meaning here, with its specification."""
    known: dict[str, Option] = dict(_of_the_site())
    for path in sorted((ROOT / "roles").glob("*/meta/argument_specs.yml")):
        for entry in (_read(path).get("argument_specs") or {}).values():
            known.update(entry.get("options") or {})
    return known


@cache
def _roles() -> tuple[str, ...]:
    """Return the roles with a specification, the longest name first."""
    names = [path.parent.parent.name for path in (ROOT / "roles").glob("*/meta/argument_specs.yml")]
    return tuple(sorted(names, key=len, reverse=True))


def _read(path: Path) -> dict[str, Any]:
    found = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return found if isinstance(found, dict) else {}


class _Problem(NamedTuple):
    """What is wrong with a variable, and by what to find it: its value, and whether it has only this one."""

    told: str
    fix: str
    name: str
    value: str = ""
    alone: bool = True


def _placed(path: Path, problem: _Problem) -> str:
    """Return a problem with file and line; without them where the variable may be right there and wrong elsewhere."""
    spot = written(path, problem.name, problem.value) if problem.value else ""
    spot = spot or (written(path, problem.name) if problem.alone else "")
    return f"{spot}: {problem.told}" if spot else problem.told


def _problems(inventory: Inventory) -> Iterable[_Problem]:
    """Yield each problem; hosts with the same problem are one."""
    values: dict[str, dict[str, tuple[Any, list[str]]]] = {}
    for host, variables in inventory.hostvars.items():
        for name, value in variables.items():
            values.setdefault(name, {}).setdefault(repr(value), (value, []))[1].append(host)
    for name, found in values.items():
        if name not in options():
            hosts = {host for _, having in found.values() for host in having}
            if problem := _unknown(name, hostlist.fold(hosts)):
                yield _Problem(*problem, name)
            continue
        for value, hosts_of_value in found.values():
            if reason := _wrong(value, options()[name]):
                shown = "" if _secret(options()[name]) else f" is {value!r}"
                yield _Problem(
                    f"{hostlist.fold(hosts_of_value)}: {name}{shown}: {reason}",
                    "correct the inventory, then run 'clusterctl check' again",
                    name,
                    str(value) if isinstance(value, str | int | float) else "",
                    len(found) == 1,
                )


def _unknown(name: str, hosts: str) -> tuple[str, str] | None:
    """Return what is wrong with a name that has no specification; None for a site's own."""
    if name in _CONNECTION:
        return None
    if instead := INSTEAD.get(name.lower()):
        return f"{hosts}: {name} has no effect here", instead
    known = _CONNECTION if name.startswith("ansible_") else options().keys()
    near = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
    role = next((role for role in _roles() if name.startswith(f"{role}_")), None)
    if role:
        # Without the common beginning, which makes all names of a role look alike.
        mine = {option.removeprefix(f"{role}_"): option for option in options() if option.startswith(f"{role}_")}
        near = near or [mine[short] for short in difflib.get_close_matches(name.removeprefix(f"{role}_"), mine, n=1)]
        fix = f"did you mean {near[0]}?" if near else f"role {role} has {', '.join(sorted(mine.values()))}"
        return f"{hosts}: role {role} has no variable {name}", fix
    if not near and name.startswith("node_") and not name.startswith(_NOT_OURS):
        fix = "remove it; what else Slurm reads of a node is node_parameters, as {CoreSpecCount: 2}"
        return f"{hosts}: there is no variable {name}", fix
    if near:
        return f"{hosts}: there is no variable {name}", f"did you mean {near[0]}?"
    return None


def _secret(option: Option) -> bool:
    """Whether a value of it must not be shown, because it is a secret or has one in it."""
    return bool(option.get("no_log")) or any(_secret(part) for part in (option.get("options") or {}).values())


def _wrong(value: Any, option: Option) -> str:
    """Return why a value cannot be used as the option's type, as a sentence; nothing where it can."""
    if value is None or templated(value):
        return ""
    if choices := option.get("choices"):
        if str(value) not in [str(choice) for choice in choices]:
            return f"it must be {' or '.join(str(choice) for choice in choices)}"
        return ""
    kind = option.get("type", "str")
    if kind == "bool" and str(value).lower() not in _YES_OR_NO:
        return "it must be true or false"
    if kind == "int":
        try:
            whole(value)
        except ValueError as error:
            return str(error)
    if kind == "float" and not re.fullmatch(r"-?\d+(\.\d+)?", str(value)):
        return "it must be a number"
    if kind in ("str", "path") and isinstance(value, list | dict):
        return "it must be text"
    if kind == "list" and isinstance(value, dict | bool | float):
        return "it must be a list"
    if kind == "dict" and not isinstance(value, dict):
        return "it must be a mapping of names to values"
    return ""
