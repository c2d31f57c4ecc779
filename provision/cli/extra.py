"""What ``-e`` may say."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from provision.errors import ClusterctlError


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
