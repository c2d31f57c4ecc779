"""Options that several commands share, each under the name and letter that Ansible gives it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from provision.cli_complete import complete_hosts, complete_inventory

Command = Callable[..., Any]


@dataclass(frozen=True)
class Request:
    """What was typed: the inventory and Ansible's options. Passwords are asked for later, only where needed."""

    inventory: Path | None = None
    limit: str | None = None
    check: bool = False
    diff: bool = False
    extra_vars: tuple[str, ...] = ()
    verbosity: int = 0
    forks: int | None = None
    ask_become: bool = False
    user: str = ""
    vault_files: tuple[str, ...] = ()
    vault_ids: tuple[str, ...] = ()
    ask_vault: bool = False
    json: bool = False


inventory_argument = click.argument(
    "inventory", type=click.Path(path_type=Path), required=False, shell_complete=complete_inventory
)

json_option = click.option("--json", "json", is_flag=True, help="Print one JSON document on standard output.")

_LIMIT = click.option(
    "-l",
    "--limit",
    metavar="HOSTS",
    shell_complete=complete_hosts,
    help="Only these machines: names, groups, node[1-4], or any pattern of Ansible.",
)

_RUNNING = (
    click.option("-e", "--extra-vars", multiple=True, metavar="VARS", help="For debugging: name=value or @file."),
    click.option("-f", "--forks", type=click.IntRange(1), help="Machines worked on at the same time."),
    click.option("-u", "--user", default="", metavar="NAME", help="Log in as this user."),
    click.option("-K", "--ask-become-pass", "ask_become", is_flag=True, help="Ask for the sudo password."),
    click.option(
        "--vault-password-file", "vault_files", multiple=True, metavar="FILE", help="Password of encrypted variables."
    ),
    click.option("--vault-id", "vault_ids", multiple=True, metavar="ID", help="Vault identity, as Ansible takes it."),
    click.option("--ask-vault-pass", "ask_vault", is_flag=True, help="Ask for the password of encrypted variables."),
    click.option(
        "-v", "--verbose", "verbosity", count=True, help="Name every task and check; -vv shows Ansible's own output."
    ),
    json_option,
)

check_option = click.option("-C", "--check", is_flag=True, help="Show what would change; change nothing.")
diff_option = click.option("-D", "--diff", is_flag=True, help="Show how files change.")


def ansible_options(command: Command) -> Command:
    """Give a command the options of everything that runs Ansible, collected into its first parameter, a ``Request``."""

    @functools.wraps(command)
    def with_request(**typed: Any) -> Any:
        names = {field.name for field in fields(Request)}
        request = Request(**{name: typed.pop(name) for name in list(typed) if name in names})
        return command(request, **typed)

    for option in reversed((_LIMIT, *_RUNNING)):
        with_request = option(with_request)
    return with_request
