"""How to log in to a machine of a lab: with the lab's own key, and with no host key but those that it recorded."""

from __future__ import annotations

from collections.abc import Sequence

from provision.errors import ClusterctlError
from provision.inventory import loader
from provision.lab import labs

#: Who has the machines' sudo: the user of the lab's inventory.
ADMIN = "admin"


def command(name: str, target: str, words: Sequence[str]) -> list[str]:
    """Return the command that enters ``machine`` or ``user@machine``, to run ``words`` there, a shell without them.

    Raises:
        ClusterctlError: there is no such lab, or it has no such machine.
    """
    home = labs.directory(name)
    if not (home / "inventory.ini").exists():
        raise ClusterctlError(f"there is no lab '{name}'", fix=f"make it: clusterctl lab up {name}")
    user, _, machine = target.rpartition("@")
    machines = {
        host: own for host, own in loader.load(home / "inventory.ini").hostvars.items() if "ansible_host" in own
    }
    if machine not in machines:
        raise ClusterctlError(
            f"lab '{name}' has no machine '{machine}'", fix=f"name one of {', '.join(machines)}, as ada@head"
        )
    options = ("IdentitiesOnly=yes", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={home / 'known_hosts'}")
    return [
        *("ssh", "-F", "none", "-i", str(home / "id_ed25519")),
        *(word for option in options for word in ("-o", option)),
        *("-p", str(machines[machine].get("ansible_port", 22))),
        f"{user or ADMIN}@{machines[machine]['ansible_host']}",
        *words,
    ]
