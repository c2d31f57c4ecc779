"""Where a machine is and how to log in there: the inventory's words, settled by OpenSSH itself.

Ansible reaches machines through the ``ssh`` command. So that the probe speaks about the same connection, ``ssh -G`` is
asked what that command would do: the user's ``~/.ssh/config``, aliases, jump hosts and known_hosts files all count.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

_SSH_CONNECTIONS = {"ssh", "smart", "ansible.builtin.ssh"}

#: ``ssh -G`` reads files and prints; it takes milliseconds. More than this is a hanging Match exec.
_SETTLE_SECONDS = 5.0


@dataclass(frozen=True)
class Target:
    """One machine as its inventory describes it.

    ``skip`` says why it cannot be probed; empty means it can. ``become_sealed``: the inventory holds a password for
    becoming root that only Ansible can open (a vault's, or a template).
    """

    name: str
    address: str
    port: int | None = None
    user: str = ""
    key_file: str = ""
    first_arguments: tuple[str, ...] = ()
    last_arguments: tuple[str, ...] = ()
    python: str = ""
    become: bool = True
    become_method: str = "sudo"
    become_password: str | None = field(default=None, repr=False)
    become_sealed: bool = False
    password_login: bool = False
    skip: str = ""

    @classmethod
    def from_hostvars(cls, name: str, variables: Mapping[str, Any], *, user: str = "") -> Target:
        """Read Ansible's connection variables of one host, untemplated as the inventory holds them.

        ``user`` is what ``-u`` named; ``ansible_user`` of the inventory wins over it, as it does in Ansible.
        """

        def text(*names: str) -> str:
            return next((str(variables[key]) for key in names if variables.get(key) not in (None, "")), "")

        connection = text("ansible_connection") or "ssh"
        address = text("ansible_ssh_host", "ansible_host") or name
        port = text("ansible_ssh_port", "ansible_port")
        first = text("ansible_ssh_args")
        last = f"{text('ansible_ssh_common_args')} {text('ansible_ssh_extra_args')}"
        texts = {
            "user": text("ansible_ssh_user", "ansible_user") or user,
            "key_file": text("ansible_ssh_private_key_file", "ansible_private_key_file"),
            "python": text("ansible_python_interpreter"),
        }
        skip = ""
        if connection not in _SSH_CONNECTIONS:
            skip = f"reached by connection '{connection}', not over SSH"
        elif any("{{" in word or "{%" in word for word in (address, port, first, last, *texts.values())):
            skip = "its connection variables are templates, which only Ansible can fill in"
        elif port and not port.isdigit():
            skip = f"ansible_port is '{port}', not a number"
        try:
            arguments = (tuple(shlex.split(first)), tuple(shlex.split(last)))
        except ValueError as error:
            arguments, skip = ((), ()), f"its SSH arguments cannot be split: {error}"
        secret = variables.get("ansible_become_password", variables.get("ansible_become_pass"))
        sealed = secret is not None and (not isinstance(secret, str) or "{{" in secret)
        python = texts["python"] if texts["python"].startswith("/") else ""
        return cls(
            name=name,
            address=address,
            port=int(port) if port.isdigit() else None,
            user=texts["user"],
            key_file=texts["key_file"],
            first_arguments=arguments[0],
            last_arguments=arguments[1],
            python=python,
            become=str(variables.get("ansible_become", True)).lower() not in ("false", "no", "0", "off"),
            become_method=(text("ansible_become_method") or "sudo").removeprefix("ansible.builtin."),
            become_password=secret if isinstance(secret, str) and not sealed else None,
            become_sealed=sealed,
            password_login=any(
                key in variables for key in ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")
            ),
            skip=skip,
        )

    @property
    def sweepable(self) -> bool:
        """True where this program itself can log in; machines that only Ansible can enter cannot be asked again."""
        return not self.skip and not self.password_login

    def arguments(self) -> list[str]:
        """Return the options that Ansible would hand to ``ssh``, in its order; the first of equals wins there."""
        own = [f"Port={self.port}" if self.port else "", f'IdentityFile="{self.key_file}"' if self.key_file else ""]
        own.append(f'User="{self.user}"' if self.user else "")
        options = [word for option in own if option for word in ("-o", option)]
        return [*self.first_arguments, *options, *self.last_arguments]


@dataclass(frozen=True)
class Route:
    """What ``ssh`` would do for a target, after all of its configuration files."""

    host: str
    port: int
    user: str
    identities: tuple[Path, ...]
    identities_only: bool
    known_hosts: tuple[Path, ...]
    key_name: str
    proxy: tuple[str, ...]

    @property
    def place(self) -> str:
        """Return the address and port, as people write them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def settle(target: Target) -> Route:
    """Ask ``ssh -G`` for the effective settings of a connection to ``target``. Connects nowhere.

    Raises:
        OSError: there is no ``ssh`` command.
        ValueError: ``ssh`` refused the options; the message is its own.
    """
    command = ["ssh", "-G", *target.arguments(), "--", target.address]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_SETTLE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"ssh -G gave no answer in {_SETTLE_SECONDS:.0f} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip() and "Pseudo-terminal" not in line]
        raise ValueError(lines[-1].strip() if lines else f"ssh -G ended with {done.returncode}")
    return _route(done.stdout, target)


def _route(text: str, target: Target) -> Route:
    settings: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        settings.setdefault(key, []).append(value)

    def first(key: str, default: str = "") -> str:
        value = settings.get(key, [default])[0]
        return "" if value == "none" else value

    host, port = first("hostname", target.address), int(first("port", "22"))
    alias = first("hostkeyalias")
    known = [*_paths(first("userknownhostsfile")), *_paths(first("globalknownhostsfile"))]
    return Route(
        host=host,
        port=port,
        user=first("user"),
        identities=tuple(Path(value).expanduser() for value in settings.get("identityfile", []) if value != "none"),
        identities_only=first("identitiesonly") == "yes",
        known_hosts=tuple(known),
        # OpenSSH writes the port beside the name only where it is not the usual one, and never beside an alias.
        key_name=alias or (host if port == 22 else f"[{host}]:{port}"),
        proxy=_proxy(first("proxyjump"), first("proxycommand"), target, host, port, first("user")),
    )


def _paths(words: str) -> list[Path]:
    whole = Path(words).expanduser()
    if not words:
        return []
    return [whole] if whole.exists() else [Path(word).expanduser() for word in words.split()]


def _proxy(jump: str, command: str, target: Target, host: str, port: int, user: str) -> tuple[str, ...]:
    """Return the command whose input and output reach the machine, as OpenSSH itself would start it."""
    if jump:
        *before, last = jump.split(",")
        through = ["-J", ",".join(before)] if before else []
        configuration = [*target.first_arguments, *target.last_arguments]
        files = [word for flag, value in pairwise(configuration) if flag == "-F" for word in (flag, value)]
        where = last if last.startswith("ssh://") else f"ssh://{last}"
        strict = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ForwardAgent=no")
        return ("ssh", *files, *strict, *through, "-W", f"[{host}]:{port}", "--", where)
    if command:
        words = {"%h": host, "%p": str(port), "%r": user, "%n": target.address, "%%": "%"}
        filled = command
        for token, value in words.items():
            filled = filled.replace(token, shlex.quote(value) if token in ("%h", "%n", "%r") else value)
        return ("/bin/sh", "-c", f"exec {filled}")
    return ()
