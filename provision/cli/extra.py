"""What ``-e`` may say: variables, never where a connection goes."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from provision.ansible_env import clean_environment
from provision.errors import ClusterctlError

#: Seconds in which a file of variables is decrypted; more is a password program that waits for somebody.
_PATIENCE = 60


def extra_variables(texts: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Split ``-e`` texts into variables and the files that hold more.

    Raises:
        ClusterctlError: a text is neither name=value, nor a mapping, nor @file.
    """
    variables: dict[str, Any] = {}
    files: list[str] = []
    for text in texts:
        if text.startswith("@"):
            files.append(f"@{Path(text[1:]).expanduser().absolute()}")
            continue
        try:
            if text.lstrip().startswith("{"):
                variables.update(yaml.safe_load(text))
                continue
            pairs = [word.partition("=") for word in shlex.split(text)]
        except (yaml.YAMLError, ValueError, TypeError):
            pairs = []
        if not pairs or not all(name and equals for name, equals, _ in pairs):
            raise ClusterctlError(
                "-e takes name=value, a JSON or YAML mapping, or @file", fix="for example: -e slurm_version=24.11"
            )
        variables.update({name: value for name, _, value in pairs})
    return variables, files


def require_no_redirection(texts: Sequence[str], *, vault: Sequence[str] = ()) -> None:
    """Refuse ``-e`` texts and files that would change where or how machines are reached.

    The inventory says that; ``-e`` holds for all machines at once, and wins: one word would apply every role here.
    ``vault`` are Ansible's own options for files that are encrypted.

    Raises:
        ClusterctlError: a variable would, or a file cannot be read.
    """
    variables, files = extra_variables(texts)
    named = [(str(name), "-e") for name in variables]
    named += [(name, f"-e {file}") for file in files for name in _names(Path(file[1:]), vault)]
    refuse_redirections(named)


def refuse_redirections(named: Iterable[tuple[str, str]]) -> None:
    """Refuse variables, each with where it is set, that would change where or how machines are reached.

    Raises:
        ClusterctlError: one would.
    """
    from provision.inventory.connections import redirects

    for name, where in named:
        if redirects(name):
            raise ClusterctlError(
                f"{where} sets {name[:60]}, which changes where or how all machines are reached",
                fix="write it in the inventory, for the machines that it is meant for; the user's name is -u",
            )


def _names(file: Path, vault: Sequence[str]) -> Iterator[str]:
    """Yield the names of the variables in a file, tags and encrypted values left as they are."""
    try:
        if not file.is_file():  # a pipe would be empty for whoever reads it next
            raise ClusterctlError(f"-e @{file}: it is no regular file", fix="write the variables to a file")
        text = file.read_bytes()
    except OSError as error:
        raise ClusterctlError(f"-e @{file} cannot be read: {error.strerror}", fix=f"ls -l {file}") from error
    if text.startswith(b"$ANSIBLE_VAULT"):
        text = _decrypted(file, vault)
    try:
        document = yaml.compose(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ClusterctlError(
            f"-e @{file} is no YAML or JSON", fix="write it as a mapping of names to values"
        ) from None
    yield from _keys(document)


def _keys(node: yaml.Node | None, depth: int = 0) -> Iterator[str]:
    """Yield a mapping's keys, those that it merges (``<<``) included.

    Raises:
        ClusterctlError: merges are nested deeper than anybody writes them.
    """
    if depth >= 50:
        raise ClusterctlError("a file of -e merges mappings 50 deep", fix="write the variables out")
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _keys(item, depth + 1)
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            yield key.value
            if key.value == "<<":
                yield from _keys(value, depth + 1)


def _decrypted(file: Path, vault: Sequence[str]) -> bytes:
    command = [str(Path(sys.executable).parent / "ansible-vault"), "view", *vault, str(file)]
    try:
        done = subprocess.run(
            command,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        done = None
    if done is None or done.returncode != 0:
        raise ClusterctlError(
            f"-e @{file} is encrypted and cannot be opened",
            fix="give the password: --vault-password-file FILE, or --ask-vault-pass",
        )
    return done.stdout
