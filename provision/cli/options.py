"""Options that several commands share, each under the name and letter that Ansible gives it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from provision.cli.complete import complete_hosts, complete_inventory

Command = Callable[..., Any]


@dataclass(frozen=True)
class Request:
    """What the user typed: the inventory and Ansible's options. Passwords are asked for later, only where needed."""

    inventory: Path | None = None
    named: Path | None = None
    limit: str | None = None
    check: bool = False
    diff: bool = False
    full: bool = False
    extra_vars: tuple[str, ...] = ()
    verbosity: int = 0
    forks: int | None = None
    ask_become: bool = False
    user: str = ""
    vault_files: tuple[str, ...] = ()
    vault_ids: tuple[str, ...] = ()
    ask_vault: bool = False
    json: bool = False


def _from_here(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Let the files of vault identities be found from any directory: Ansible looks for them elsewhere than we do."""
    absolute = []
    for text in texts:
        label, at, source = text.rpartition("@")
        if source in ("prompt", "prompt_ask_vault_pass"):
            raise click.BadParameter(f"{text}: use --ask-vault-password instead of a prompt")
        if not Path(source).expanduser().is_file():
            raise click.BadParameter(f"{text}: there is no file {source}")
        absolute.append(f"{label}{at}{Path(source).expanduser().resolve()}")
    return tuple(absolute)


inventory_argument = click.argument(
    "inventory", type=click.Path(path_type=Path), required=False, shell_complete=complete_inventory
)

#: As in Ansible's own programs.
inventory_option = click.option(
    "-i",
    "--inventory",
    "named",
    type=click.Path(path_type=Path),
    metavar="INVENTORY",
    shell_complete=complete_inventory,
    help="Inventory file or directory.",
)

json_option = click.option("--json", "json", is_flag=True, help="Print one JSON document on standard output.")

_LIMIT = click.option(
    "-l",
    "--limit",
    metavar="HOSTS",
    shell_complete=complete_hosts,
    help="Only these machines: names, groups, node[1-4], or any pattern of Ansible.",
)

_VAULT = (
    click.option(
        "--vault-password-file",
        "vault_files",
        type=click.Path(exists=True, dir_okay=False, resolve_path=True),
        multiple=True,
        metavar="FILE",
        help="File with the password of encrypted variables.",
    ),
    click.option(
        "--vault-id",
        "vault_ids",
        multiple=True,
        metavar="ID",
        callback=_from_here,
        help="Vault identity, as Ansible takes it: LABEL@FILE or FILE.",
    ),
    click.option(
        "-J",
        "--ask-vault-password",
        "--ask-vault-pass",
        "ask_vault",
        is_flag=True,
        help="Ask for the password of encrypted variables.",
    ),
)

_RUNNING = (
    click.option(
        "-e", "--extra-vars", multiple=True, metavar="VARS", help="Variables for this run: name=value or @file."
    ),
    click.option("-f", "--forks", type=click.IntRange(1), help="Number of machines to work on in parallel."),
    click.option("-u", "--user", default="", metavar="NAME", help="Log in as this user."),
    click.option("-K", "--ask-become-pass", "ask_become", is_flag=True, help="Ask for the sudo password."),
    *_VAULT,
    click.option(
        "-v", "--verbose", "verbosity", count=True, help="Show every task and check; -vv adds Ansible's own output."
    ),
    json_option,
)

check_option = click.option("-C", "--check", is_flag=True, help="Show what would change; change nothing.")
full_option = click.option("--full", is_flag=True, help="Run every role on every machine, even where no check fails.")
diff_option = click.option("-D", "--diff", is_flag=True, help="Show how files change.")


def _collected(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that gives a command these options, collected into its first parameter, a ``Request``."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_request(**typed: Any) -> Any:
            names = {field.name for field in fields(Request)}
            request = Request(**{name: typed.pop(name) for name in list(typed) if name in names})
            return command(request, **typed)

        decorated: Command = with_request
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


timeout_option = click.option(
    "--timeout", default=86400, type=click.IntRange(0), metavar="SECONDS", show_default=True, help="For --drain."
)

#: For everything that runs Ansible.
ansible_options = _collected(inventory_option, _LIMIT, *_RUNNING)

#: For what only reads the inventory.
reading_options = _collected(inventory_argument, inventory_option, *_VAULT, json_option)
