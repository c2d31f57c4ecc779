"""Write the reference of variables and of checks, from what clusterctl itself reads: neither can drift."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import provision
from provision.content import ROOT
from provision.judge import manifest, road
from provision.model.checks import Subject

#: Ansible's marks for code, values and options.
_MARK = re.compile(r"\b[CVO]\(((?:[^()]|\([^()]*\))*)\)")


def _text(description: str | list[str]) -> str:
    parts = [description] if isinstance(description, str) else description
    return "\n\n".join(_MARK.sub(r"`\1`", part) for part in parts)


def _options(options: dict[str, Any]) -> Iterator[str]:
    for name, option in sorted(options.items()):
        known = [option.get("type", "str")]
        known += [f"one of {', '.join(f'`{one}`' for one in option['choices'])}"] if "choices" in option else []
        known += ["required"] if option.get("required") else []
        default = " ".join(str(option.get("default", "")).split())
        known += [f"default `{default}`"] if default else []
        text = f"{', '.join(known)}\n\n{_text(option['description'])}"
        yield f"`{name}`\n: " + text.replace("\n", "\n  ") + "\n"


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def variables() -> str:
    """Return all variables that an inventory may set, from the specs that ``clusterctl check`` reads."""
    described = _load(ROOT / "provision/inventory/site_variables.yml")["options"]
    shared = _load(ROOT / "roles/cluster/defaults/main.yml")
    site = {name: ({"default": shared[name]} if name in shared else {}) | one for name, one in described.items()}
    own = {name: option for name, option in site.items() if "It follows from" not in _text(option["description"])}
    parts = ["# Variables\n\n`clusterctl check` compares the inventory with these specifications.\n"]
    parts += ["## The cluster and its machines\n", *_options(own)]
    for path in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        specs = _load(path)["argument_specs"]
        about = _text(specs["main"].get("description", specs["main"]["short_description"]))
        options = {name: option for spec in specs.values() for name, option in spec.get("options", {}).items()}
        parts += [f"## Role `{path.parts[-3]}`\n", f"{about}\n", *_options(options)]
    return "\n".join(parts)


def subjects() -> dict[Subject, str]:
    """Return all that is judged, each with the first sentence of the module that judges it."""
    found = {road.generic(name, role.kinds): f"What role `{name}` manages." for name, role in road.ROLES.items()}
    for info in pkgutil.walk_packages(provision.__path__, "provision."):
        # These start something, or are no modules of ours.
        if not info.name.startswith(("provision._content", "provision.inventory.dump")):
            module = importlib.import_module(info.name)
            about = re.split(r"(?<=[.?])\s", module.__doc__ or "")[0]
            found |= {one: about for one in vars(module).values() if isinstance(one, Subject) and one not in found}
    return {subject: about for subject, about in found.items() if subject.names}


def asked() -> dict[str, tuple[set[str], set[str]]]:
    """Return which commands ask for each check, and of the machines of which groups."""
    rows = [(command, *row) for command, found in manifest.OWED.items() for row in found]
    rows += [("verify", role.groups, road.generic(name, role.kinds)) for name, role in road.ROLES.items()]
    found: dict[str, tuple[set[str], set[str]]] = {}
    for command, groups, subject in rows:
        for name in subject.ids:
            commands, machines = found.setdefault(name, (set(), set()))
            commands.add(f"`{command}`")
            machines |= {f"`{group}`" for group in groups or manifest.GROUPS}
    return found


def checks() -> str:
    """Return all checks by subject: which commands ask for them, on which machines, and the usual fix."""
    owed, found = asked(), subjects()
    parts = ["# Checks\n", "Each check has the name that `verify`, `plan` and `preflight` print.\n"]
    for title in sorted({subject.name for subject in found}):
        own = {subject: about for subject, about in found.items() if subject.name == title}
        parts += [f"## `{title}`\n", *(f"{about}\n" for about in dict.fromkeys(own.values()))]
        parts += ["| Check | Commands | Machines | Usual fix |", "| --- | --- | --- | --- |"]
        for name, fix in sorted({name: one.fix for one in own for name in one.ids}.items()):
            commands, groups = owed.get(name, ({"`verify`"}, set()))
            machines = ", ".join(sorted(groups)) if 0 < len(groups) < len(manifest.GROUPS) else "all"
            parts.append(f"| `{name}` | {', '.join(sorted(commands))} | {machines} | {fix and f'`{fix}`'} |")
        parts.append("")
    return "\n".join(parts)


def write(folder: Path) -> None:
    """Write both pages."""
    folder.mkdir(exist_ok=True)
    for name, text in (("variables", variables()), ("checks", checks())):
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
