"""Made-up machines: names on 127.0.1.1 and up, behind one real sshd that answers each module with a recorded text.

Ansible does all of its work for them: it opens a connection to each, proves the host key, sends the module and reads
the answer. Only the module itself is not run: the server's forced command reads it to its end and prints what a file of
the module's name holds. Everything is in one temporary directory, with keys made for the occasion.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sshd

#: What the server runs whatever was asked for. A module comes on stdin, its name near the end of the text; a password
#: for sudo is never asked for, but its "now you are root" is waited for. What is no module is run: it is a question of
#: Ansible's (which Python there is) or of clusterctl's (whether the login works).
ANSWER = r"""#!/bin/sh
case "$SSH_ORIGINAL_COMMAND" in
*"command -v"*) exec /bin/sh -c "$SSH_ORIGINAL_COMMAND" ;;
*"&& sleep 0'") ;;
*) exec /bin/sh -c "$SSH_ORIGINAL_COMMAND" ;;
esac
case "$SSH_ORIGINAL_COMMAND" in
*BECOME-SUCCESS-*) word=${{SSH_ORIGINAL_COMMAND##*BECOME-SUCCESS-}}; echo "BECOME-SUCCESS-${{word%%[!a-z]*}}" ;;
esac
cd {answers} || exit 1
module=$(sed -n "s/^ansible_module='\([a-z_.]*\)',$/\1/p")
file=${{module##*.}}
set -- $SSH_CONNECTION
address=$3
IFS=.
set -- $address
name=made$((($3 - 1) * 250 + $4 - 1))
[ "$name" != made0 ] || name=head
[ ! -f "$file.$name" ] || file=$file.$name
exec sed "s/@NAME@/$name/g; s/@ADDRESS@/$address/g; s/@NOW@/$(date +%s.%N)/g" "$file"
"""


def address(number: int) -> str:
    """Return the address of the ``number``-th machine, counted from 0: 127.0.1.1 and up."""
    return f"127.0.{1 + number // 250}.{1 + number % 250}"


def name(number: int) -> str:
    """Return the name of the ``number``-th machine: the controller is the first."""
    return f"made{number}" if number else "head"


def inventory(count: int, variables: Mapping[str, object], hardware: Mapping[str, object] | None = None) -> str:
    """Return an INI inventory of a controller and ``count - 1`` compute nodes; ValueError for less than one.

    ``hardware`` are the nodes' variables, ``variables`` those of all machines.
    """
    if count < 1:
        raise ValueError("a cluster has one machine at least")
    lines = ["[slurm_controller]", f"{name(0)} ansible_host={address(0)}", "", "[slurm_compute]"]
    lines += [f"{name(n)} ansible_host={address(n)}" for n in range(1, count)]
    lines += [
        "",
        "[slurm_compute:vars]",
        *(f"{key}={value}" for key, value in (hardware or {"node_cpus": 4, "node_real_memory": 4000}).items()),
        "",
        "[all:vars]",
    ]
    variables = {"cluster_name": "bench", **variables}
    # In an INI file a value is read as Python where it can be, so that a text is quoted.
    lines += [f"{key}={json.dumps(value) if isinstance(value, str) else value}" for key, value in variables.items()]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Fleet:
    """A running server and what a client needs for it."""

    directory: Path
    port: int

    def answer(self, module: str, answer: Mapping[str, Any] | str, machine: str = "") -> None:
        """Let every machine, or the one, answer a module with this, as it is or as JSON.

        ``@NAME@``, ``@ADDRESS@`` and ``@NOW@`` in it become the machine's own.
        """
        path = self.directory / "answers" / (f"{module}.{machine}" if machine else module)
        path.write_text(answer if isinstance(answer, str) else json.dumps(answer), encoding="utf-8")

    def variables(self) -> dict[str, object]:
        """Return the variables with which Ansible gets to the machines and looks for nothing."""
        known = self.directory / "known_hosts"
        return {
            "ansible_port": self.port,
            "ansible_user": getpass.getuser(),
            "ansible_ssh_private_key_file": str(self.directory / "client_key"),
            "ansible_ssh_common_args": "-F none -o StrictHostKeyChecking=yes -o GlobalKnownHostsFile=none"
            f" -o IdentitiesOnly=yes -o UserKnownHostsFile={known}",
            "ansible_python_interpreter": "/usr/bin/python3",
        }

    def write(self, count: int, hardware: Mapping[str, object] | None = None, **changes: object) -> Path:
        """Write the inventory of ``count`` machines and return its path; a variable that is None is left out."""
        variables = {key: value for key, value in {**self.variables(), **changes}.items() if value is not None}
        path = self.directory / f"made{count}.ini"
        path.write_text(inventory(count, variables, hardware), encoding="utf-8")
        return path


@contextmanager
def running(directory: Path) -> Iterator[Fleet]:
    """Run the machines' server until the block ends; ``directory`` is empty and stays."""
    host, client = (
        sshd.make_key(directory / name).with_suffix(".pub").read_text(encoding="utf-8")
        for name in ("host_key", "client_key")
    )
    script = directory / "answer"
    (directory / "answers").mkdir()
    script.write_text(ANSWER.format(answers=directory / "answers"), encoding="utf-8")
    script.chmod(0o755)
    (directory / "authorized_keys").write_text(f'restrict,command="{script}" {client}', encoding="utf-8")
    lines = (
        # Of one server, because it may listen on 16 addresses only; whoever is not here is refused.
        "ListenAddress 0.0.0.0",
        f"AllowUsers {getpass.getuser()}@127.*",
        "UseDNS no",
        "PermitRootLogin forced-commands-only",
        "LogLevel ERROR",
        "MaxStartups 1000",
    )
    with sshd.serving(directory, *lines) as (port, _):
        (directory / "known_hosts").write_text(f"[127.0.*.*]:{port} {host}", encoding="utf-8")
        yield Fleet(directory, port)
