"""A role's data with its templates resolved: what is written and what a machine is compared with are the same texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from provision import content


def rendered(role: str, data: Mapping[str, Any], templar: Any, read: Callable[[str], Any]) -> dict[str, Any]:
    """Return a role's data (:mod:`provision.model.managed`) as it is on one machine, with each file's ``text``.

    Args:
        role: whose templates and files they are.
        data: with its templates, or a part of it.
        templar: Ansible's, with the machine's variables.
        read: returns a file as a template of Ansible's.
    """
    managed = dict(templar.template(data))
    directory = content.ROOT / "roles" / role
    files = []
    for entry in managed.get("files") or ():
        entry = dict(entry)
        if "template" in entry and entry.get("when", True):
            entry["text"] = _text(directory / "templates" / entry["template"], entry, templar, read)
        elif "file" in entry:
            entry["text"] = (directory / "files" / entry["file"]).read_text(encoding="utf-8")
        elif "content" in entry:
            entry["text"] = entry["content"]
        files.append(entry)
    return {**managed, "files": files}


def _text(path: Path, entry: Mapping[str, Any], templar: Any, read: Callable[[str], Any]) -> Any:
    own = templar.copy_with_new_env(searchpath=[str(path.parent)])
    own.available_variables["item"] = entry  # a template may speak of the file that it is
    return own.template(read(str(path)), overrides={"trim_blocks": True})  # as the action template sets Jinja's options
