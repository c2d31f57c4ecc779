"""How machines are reached: what would weaken a connection, or lead it elsewhere, is refused before one is made.

Inventory variables win over ``ansible.cfg`` and the environment, and ``-e`` wins over the inventory. So strict host
keys are only as good as what is let through here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from provision import hostlist
from provision.errors import ClusterctlError
from provision.inventory.loader import Inventory, cluster_hosts
from provision.inventory.plain import templated
from provision.inventory.where import written
from provision.model.numbers import whole

#: Options whose value decides whether a machine is who it says it is, or what it gets from whoever connects; each with
#: the values that are fine.
_STRICT = {
    "stricthostkeychecking": {"yes", "true"},
    "forwardagent": {"no", "false"},
    "forwardx11": {"no", "false"},
    "forwardx11trusted": {"no", "false"},
    "gssapidelegatecredentials": {"no", "false"},
    "permitlocalcommand": {"no", "false"},
    "nohostauthenticationforlocalhost": {"no", "false"},
    "knownhostscommand": {"none"},
    "verifyhostkeydns": {"no", "false"},
    "controlpath": {"none"},
}
#: The same options as letters of ``ssh``.
_LETTERS = {
    "A": "hands the agent's keys to the machines",
    "X": "hands the display to the machines",
    "Y": "hands the display to the machines",
    "K": "hands Kerberos credentials to the machines",
    "S": "uses whatever connection a socket leads to, without asking for its host key",
}
#: Letters of ``ssh`` and ``sftp`` that a value follows.
_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWwPs")

_ARGUMENTS = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_sftp_extra_args", "ansible_scp_extra_args")
_CHECKING = (
    *("ansible_host_key_checking", "ansible_ssh_host_key_checking"),
    *("ansible_paramiko_host_key_checking", "ansible_paramiko_ssh_host_key_checking"),
)
_SOCKETS = ("ansible_control_path", "ansible_control_path_dir")
_PORTS = ("ansible_port", "ansible_ssh_port", "ansible_paramiko_port")
_PROGRAMS = ("ansible_ssh_executable", "ansible_sftp_executable", "ansible_scp_executable", "ansible_sshpass_prompt")

#: What Ansible takes for no.
_NO = {"false", "no", "0", "off", "n", "f", "0.0"}

#: What ``-e`` may not set: everything that says where a connection goes, and how.
_REDIRECTS = re.compile(
    r"ansible_(connection|host|port|user|password|private_key(_.*)?|host_key_checking|timeout|pipelining|remote_addr|"
    r"(ssh|paramiko|sftp|scp|sshpass|shell|control_path|docker|podman|winrm|psrp|local|network|lxc|lxd|chroot|jail)_?.*|"
    r".*_interpreter)|inventory_hostname(_short)?|delegate_to|clusterctl_(run|left_out|command|process|releases|time_factor)"
)


def require_safe(inventory: Inventory) -> None:
    """Refuse variables of an inventory that weaken a connection.

    Raises:
        ClusterctlError: host keys would not be checked, the agent would be handed over, a port is none, or several
            machines would be this computer.
    """
    _require_one_here(inventory)
    found: dict[tuple[str, str, str], list[str]] = {}
    for host, variables in inventory.hostvars.items():
        for name in (*_ARGUMENTS, *_CHECKING, *_PORTS, *_PROGRAMS, *_SOCKETS, "ansible_ssh_args"):
            if variables.get(name) is not None and (problem := weakness(name, variables[name])):
                found.setdefault((name, *problem), []).append(host)
    for (name, reason, fix), hosts in found.items():
        place = f" ({spot})" if (spot := written(inventory.path, name)) else ""
        raise ClusterctlError(f"{hostlist.fold(hosts)}: {name} {reason}{place}", fix=fix)


def _require_one_here(inventory: Inventory) -> None:
    """Refuse an inventory by which several machines are the control node, changed by root once for each of them.

    One can be: clusterctl runs on the controller of many a cluster. Without root nothing of this computer is changed.
    """
    here = [host for host in cluster_hosts(inventory) if _is_here(inventory.hostvars[host])]
    if len(here) > 1:
        place = f" ({spot})" if (spot := written(inventory.path, "ansible_connection")) else ""
        raise ClusterctlError(
            f"{hostlist.fold(here)}: by ansible_connection=local each of these machines is this computer{place}",
            fix="write ansible_connection=local on the line of the one machine that clusterctl runs on",
        )


def _is_here(variables: Mapping[str, Any]) -> bool:
    connection = str(variables.get("ansible_connection", "")).rpartition(".")[2]
    return connection == "local" and str(variables.get("ansible_become", True)).lower() not in _NO


def weakness(name: str, value: Any) -> tuple[str, str] | None:
    """Return what is wrong with a connection variable's value, and the fix; None where it is fine."""
    if name == "ansible_ssh_args":
        return (
            "takes the place of the options under which host keys are checked",
            "write them as ansible_ssh_common_args, which adds to ours",
        )
    if name in _PROGRAMS:
        return "lets another program make the connections", f"remove {name}; the ssh on PATH is used"
    if name in _SOCKETS:
        return "leads to connections that others may have made, whose host keys nobody asks for", f"remove {name}"
    if name in _CHECKING:
        # Whatever is not one of these words, a template for example, Ansible takes for "no", or only it can know.
        if str(value).strip().lower() not in ("yes", "true", "on", "y", "t", "1", "1.0"):
            return (
                "switches the check of host keys off",
                f"remove {name}; record the machine's key instead: ssh-keyscan HOST >> ~/.ssh/known_hosts, compared on "
                "its console",
            )
        return None
    if name in _PORTS:
        return _port(value)
    if templated(str(value)):
        return "holds a template: what it becomes cannot be checked", "write the options themselves"
    for option, setting in options_in(str(value)):
        if option == "userknownhostsfile" and setting.split() in ([], ["none"], ["/dev/null"]):
            return "forgets every host key", "name a file with the machines' keys, or leave UserKnownHostsFile out"
        fine = _STRICT.get(option)
        if fine is not None and setting.lower() not in fine:
            return (
                f"sets {option} to {setting[:40]!r}",
                f"leave {option} out; it is {sorted(fine)[0]} for every machine",
            )
        if option in _LETTERS and setting != "none":
            return f"{_LETTERS[option]} (-{option})", f"leave -{option} out"
    return None


def redirects(name: str) -> bool:
    """Say whether a variable that ``-e`` sets would change where a connection goes, or how."""
    return _REDIRECTS.fullmatch(name) is not None


def options_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the options in ssh's arguments as name and value, names in lower case; letters (``A``) have no value."""
    try:
        words = shlex.split(text)
    except ValueError:
        return  # which the connection itself will refuse
    waiting = iter(words)
    for word in waiting:
        if not word.startswith("-") or word == "--":
            continue
        for position, letter in enumerate(word[1:], start=2):
            if letter not in _WITH_VALUE:
                yield letter, ""
                continue
            value = word[position:] or next(waiting, "")
            if letter in _LETTERS:
                yield letter, value
            if letter == "o":
                name, _, setting = re.sub(r"\s*=\s*|\s+", "=", value.strip(), count=1).partition("=")
                yield name.lower(), setting.strip().strip('"')
            break


def _port(value: Any) -> tuple[str, str] | None:
    if isinstance(value, str) and "{" in value:
        return None
    try:
        fine = 1 <= whole(value) <= 65535
    except ValueError:
        fine = False
    return None if fine else (f"is {str(value)[:40]!r}: it must be a port, 1 to 65535", "correct the port")
