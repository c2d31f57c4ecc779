# SPDX-License-Identifier: Apache-2.0
"""What a lab gives its machines that a site's administrator gives them otherwise. Pure."""

from __future__ import annotations

import ast
from collections.abc import Sequence

#: What it is, how the lab gives it, and what a site's administrator does or has instead.
Row = tuple[str, str, str]

_MIRRORS: Row = ("package mirrors", "this computer's own, in /etc/apt/sources.list", "has the machines' own")
_BY_EVERY_LAB: tuple[Row, ...] = (
    ("name servers", "this computer's, in /etc/resolv.conf", "DHCP or the installer"),
    ("host keys", "made by the lab, in its known_hosts", "ssh-keyscan, compared"),
    ("/home", "one directory of this computer on all containers", "a file system, or nfs_server: cluster_mounts"),
    ("GPUs", "simulated: device files and an nvidia-smi", "real ones, and their driver's stage"),
    ("/dev/fuse, /dev/net/tun", "made at each start", "the kernel's modules"),
    ("compiled Python", "kept for root, /var/cache/clusterctl-lab", "nothing: it has more processors"),
)
_ORDINARY: tuple[Row, ...] = (
    ("a proxy", "apt's of this computer", "cluster_proxy"),
    (
        "certificate authorities",
        "this computer's, and the labs' own, in /usr/local/share/ca-certificates",
        "puts its own there, update-ca-certificates",
    ),
    ("packages", "the engine and a few more installed, others in apt's cache", "nothing: the roles install them"),
    ("wheels for pip", "this computer's index in /etc/pip.conf, its wheels from LAB-depot", "/etc/pip.conf"),
    ("built images", "a registry of all labs, LAB-depot: container_images_shared", "the same, with its registry"),
    ("the user admin", "made with a key and sudo, home /var/lib/admin", "a user with sudo: ansible_user"),
    ("RDMA adapters", "simulated: soft-RoCE, of virtual machines alone", "real ones"),
)
#: With ``--site``.
_OF_A_SITE: tuple[Row, ...] = (
    ("a proxy", "LAB-gate, the only way out: cluster_proxy in the inventory", "cluster_proxy"),
    (
        "certificate authorities",
        "the site's, in /usr/local/share/ca-certificates",
        "puts its own there, update-ca-certificates",
    ),
    ("a package index", "LAB-gate by TLS: index-url in /etc/pip.conf", "/etc/pip.conf"),
    ("the user admin", "made with a key; sudo asks for its password, site", "a user with sudo: ansible_user, -K"),
)


def listed(*, site: bool) -> list[dict[str, str]]:
    """Return the list, as ``clusterctl lab status --json`` has it; ``site``: of a lab made with ``--site``."""
    rows = (_MIRRORS, *(_OF_A_SITE if site else _ORDINARY), *_BY_EVERY_LAB)
    return [{"what": what, "how": how, "site": instead} for what, how, instead in rows]


def pip_settings(told: str) -> dict[str, list[str]]:
    """Return where pip gets packages, by its options' names; ``told`` is what ``pip config list`` prints."""
    found: dict[str, list[str]] = {}
    # pip goes by its environment first.
    for line in sorted(told.splitlines(), key=lambda line: line.startswith(":env:")):
        name, is_one, value = line.partition("=")
        option = name.rpartition(".")[2]
        if is_one and option in ("index-url", "extra-index-url", "find-links", "trusted-host"):
            found[option] = str(ast.literal_eval(value)).split()
    return found


def pip_conf(settings: dict[str, list[str]], wheels: Sequence[str]) -> str:
    """Return the machines' pip.conf: of the settings what is no file of this computer, and the addresses of wheels."""
    found = {
        option: [word for word in words if option == "trusted-host" or word.startswith(("http://", "https://"))]
        for option, words in settings.items()
    }
    found["find-links"] = [*found.get("find-links", []), *wheels]
    lines = [f"{option} = {' '.join(words)}" for option, words in sorted(found.items()) if words]
    return "\n".join(["[global]", *lines, ""]) if lines else ""
