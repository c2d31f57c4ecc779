"""Shell completion: stages and host names, read cheaply, without starting Ansible."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

_SECTION = re.compile(r"^\[(?P<name>[^\]:]+)(:(?P<kind>\w+))?\]")


def stage_names() -> tuple[str, ...]:
    """Return the stages of a provision run, in order."""
    from provision import content

    return content.stages()


def complete_inventory(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete a path."""
    return [CompletionItem(incomplete, type="file")]


def complete_stages(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the stages, and a path as long as nothing has been named."""
    named = ctx.params.get("words") or ()
    offered = [CompletionItem(stage) for stage in stage_names() if stage.startswith(incomplete) and stage not in named]
    return offered if named or offered else [CompletionItem(incomplete, type="file")]


def complete_hosts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer host and group names for the last word of a comma-separated limit."""
    before, comma, last = incomplete.rpartition(",")
    # As --limit lacks its value yet, Click gives what was typed before it to no argument.
    words = ctx.params.get("words") or ctx.args
    path = ctx.params.get("inventory") or ctx.params.get("named") or (words[0] if words else None)
    names = names_in(Path(path) if path else None)
    return [CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(last)]


def names_in(path: Path | None) -> list[str]:
    """Return the host and group names of an inventory, INI or YAML; of anything else, or a missing one, none."""
    import yaml  # with the loader, not for what only shows help

    from provision.errors import ClusterctlError
    from provision.inventory.loader import default_path

    try:
        path = path if path and path.is_file() else default_path()
        text = path.read_text(encoding="utf-8", errors="replace")
        found = (
            _keys(yaml.load(text, yaml.CSafeLoader)) if path.suffix in (".yml", ".yaml") else _names(text.splitlines())
        )
        return list(dict.fromkeys(found))
    except (OSError, ClusterctlError, yaml.YAMLError):
        return []


def _keys(groups: Any) -> Iterator[str]:
    for name, group in groups.items() if isinstance(groups, dict) else ():
        yield str(name)
        if isinstance(group, dict):
            yield from map(str, group.get("hosts") or ())
            yield from _keys(group.get("children"))


def _names(lines: Iterable[str]) -> Iterable[str]:
    kind: str | None = None
    for line in (line.strip() for line in lines):
        if match := _SECTION.match(line):
            kind = match["kind"] or "hosts"
            yield match["name"]
        elif line and line[0] not in "#;" and kind in (None, "hosts"):
            word = line.split()[0]
            if "[" not in word:
                yield word


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, stages and host names in your shell.

    \b
    Example:
        eval "$(clusterctl completion bash)"                                  # this shell
        clusterctl completion bash > /etc/bash_completion.d/clusterctl        # every shell
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    click.echo(found(context.find_root().command, {}, "clusterctl", "_CLUSTERCTL_COMPLETE").source())
