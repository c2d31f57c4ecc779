"""Values that stand in the inventory as they are: what only Ansible could compute is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.errors import ClusterctlError


def templated(value: object) -> bool:
    """Tell whether a value is a text of which only Ansible knows what it becomes."""
    return isinstance(value, str) and any(begin in value for begin in ("{{", "{%", "{#"))


def refuse_templates(host: str, variable: str, value: Any, entry: tuple[str, int | None, str] | None = None) -> None:
    """Refuse what only Ansible could compute: a configuration made from it would differ between the two doors.

    ``entry`` is where it stands within the variable.
    """
    if templated(value):
        raise ClusterctlError(
            f"{host}: {variable} holds a template ({value[:60]!r}), and must be a plain value",
            fix="write the value itself; where it differs between nodes, use group_vars/ or host_vars/",
            said=(variable, ""),
            entry=entry or ("", None, ""),
        )
    if isinstance(value, Mapping):
        for key, item in value.items():
            # Of what is deeper the outermost key is told.
            place = entry if entry and entry[2] else (variable, entry[1] if entry else None, str(key))
            refuse_templates(host, variable, key, place)
            refuse_templates(host, variable, item, place)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            refuse_templates(host, variable, item, entry or (variable, number, ""))
