"""What roles manage on the machines of an inventory, by their data: without asking any machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import add_all_plugin_dirs, init_plugin_loader
from ansible.template import Templar
from ansible.utils.collection_loader import AnsibleCollectionConfig
from ansible.vars.manager import VariableManager

from provision import content
from provision.judge import road
from provision.model.managed import KINDS

#: What a machine of a lab has answered.
ANSWERED = {
    "cluster_machine": {
        "container": True,
        "engine": {"version": "", "raises_limits": False},
        "memlock": {"login_highest": "unlimited", "service_highest": "unlimited"},
    },
}

#: How a file says what is in it. One without any of these only has to be there.
_TEXTS = frozenset({"template", "content", "file", "text", "fingerprints"})


def data_of_roles() -> tuple[DataLoader, dict[str, Any], dict[str, Any]]:
    """Return defaults and constants of all roles, their templates unresolved, as the action observe reads them."""
    loader, defaults, constants = DataLoader(), {}, {}
    for role in ("cluster", *road.ROLES):
        directory = content.ROOT / "roles" / role
        add_all_plugin_dirs(str(directory))
        for part, found in (("defaults", defaults), ("vars", constants)):
            if (file := directory / part / "main.yml").is_file():
                found |= loader.load_from_file(str(file), cache="none", trusted_as_template=True) or {}
    return loader, defaults, constants


def on_machines(inventory: Path) -> Iterator[tuple[str, dict[str, Any], Templar]]:
    """Yield each machine of an inventory with the constants of all roles, and what resolves their templates there."""
    if AnsibleCollectionConfig.collection_finder is None:  # another test of this process may have needed it
        init_plugin_loader()
    loader, defaults, constants = data_of_roles()
    manager = InventoryManager(loader, sources=[str(inventory)])
    variables = VariableManager(loader, manager)
    own = {host.name: variables.get_vars(host=host) for host in manager.get_hosts()}
    for name, told in own.items():
        known = {"hostvars": own, "ansible_facts": ANSWERED, "cluster_controller_shared": {}}
        yield name, constants, Templar(loader, variables={**defaults, **told, **constants, **known})


def of_role(role: str, constants: dict[str, Any], templar: Templar) -> Iterator[tuple[str, str, bool]]:
    """Yield kind and name of each thing that a role's data names on a machine, and whether it says what is in it."""
    data = constants.get(f"__{role}_managed") or {}
    for kind, key in KINDS.items():
        entries = data.get(kind) or ()
        for entry in templar.template(entries) if isinstance(entries, str) else entries:
            if not key:
                yield kind, str(templar.template(entry)), False
            elif templar.template(entry.get("when", True)):
                yield kind, str(templar.template(entry[key])), not _TEXTS.isdisjoint(entry)


def files(inventory: Path) -> dict[str, dict[str, dict[str, bool]]]:
    """Return the managed files by machine, role and path, and of each whether it has a text to be compared with."""
    found: dict[str, dict[str, dict[str, bool]]] = {}
    for machine, constants, templar in on_machines(inventory):
        groups = templar.available_variables["group_names"]
        for role in road.roles_for(road.ROLES, groups, templar.available_variables["groups"]):
            paths = {path: text for kind, path, text in of_role(role, constants, templar) if kind == "files"}
            if paths:
                found.setdefault(machine, {})[role] = paths
    return found
