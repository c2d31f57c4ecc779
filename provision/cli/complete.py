"""Shell completion: stages and host names, read cheaply, without starting Ansible."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

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
    words = ctx.params.get("words") or ()
    path = ctx.params.get("inventory") or (words[0] if words else None)
    return [CompletionItem(f"{before}{comma}{name}") for name in names_in(path and Path(path)) if name.startswith(last)]


def names_in(path: Path | None) -> list[str]:
    """Return the host and group names of an INI inventory; of anything else, or a missing one, none."""
    if path is None or not path.is_file():
        named = os.environ.get("CLUSTERCTL_INVENTORY")
        path = Path(named) if named else Path("inventory.ini")
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return list(dict.fromkeys(_names(lines)))


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
