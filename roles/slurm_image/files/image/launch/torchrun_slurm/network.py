# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""How this machine reaches the others: addresses, interfaces, RDMA adapters. Nothing is sent."""

from __future__ import annotations

import fcntl
import socket
import struct
from pathlib import Path
from typing import Iterator

from torchrun_slurm.step import Refusal, Step

#: linux/sockios.h: the address of an interface.
SIOCGIFADDR = 0x8915


def own_address(towards: str) -> str:
    """Return the address from which this machine talks to another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect((towards, 9))
        return str(one.getsockname()[0])


def address(step: Step) -> str:
    """Return the first node's address, as the others know it."""
    try:
        first = str(socket.getaddrinfo(step.nodes[0], None, socket.AF_INET)[0][4][0])
        if first.startswith("127.") and len(step.nodes) > 1 and step.node == 0:
            first = own_address(step.nodes[1])
    except OSError as problem:
        raise Refusal(f"{step.nodes[0]} has no address here: {problem}", "getent ahosts NAME; /etc/hosts") from problem
    if first.startswith("127.") and len(step.nodes) > 1:
        raise Refusal(f"{step.nodes[0]} is {first} here, which is every machine's own", "mend /etc/hosts of this node")
    return first


def interface(towards: str) -> str:
    """Return the network interface by which this machine reaches an address, nothing where that cannot be told."""
    try:
        mine = own_address(towards)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            for _, name in socket.if_nameindex():
                try:
                    asked = struct.pack("256s", name.encode()[:15])
                    told = fcntl.ioctl(one.fileno(), SIOCGIFADDR, asked)
                except OSError:
                    continue  # it has no IPv4 address
                if socket.inet_ntoa(told[20:24]) == mine:
                    return name
    except OSError:
        pass
    return ""


def taken(port: int) -> bool:
    """Tell whether something of this node listens on a port already."""
    try:
        socket.create_server(("", port), reuse_port=False).close()
    except OSError:
        return True
    return False


def adapters(root: str = "/sys/class/infiniband") -> list[str]:
    """Return the ports of RDMA adapters that NCCL may take, in words: those that are up, of RoCE with the GID.

    NCCL takes every port that is ACTIVE; of RoCE, the GID of version 2 with an IPv4 address (since 2.21 by itself).
    """
    found = []
    for place in sorted(Path(root).glob("*/ports/*")):
        if "ACTIVE" not in read(place / "state"):
            continue
        kind, gid = "InfiniBand", ""
        if read(place / "link_layer") == "Ethernet":
            kind, gid = "RoCE", ", " + next(gids(place), "no GID of RoCE v2 with an IPv4 address")
        found.append(f"{place.parts[-3]}:{place.name} {kind} {read(place / 'rate').partition(' (')[0]}{gid}")
    return found


def read(path: Path) -> str:
    """Return a file's text without its ends, nothing where it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def gids(place: Path) -> Iterator[str]:
    """Yield the GIDs of a port of RoCE that version 2 and IPv4 have, in words."""
    types = place / "gid_attrs" / "types"
    for index in sorted(int(path.name) for path in types.iterdir()) if types.is_dir() else []:
        if read(types / str(index)) == "RoCE v2" and ":ffff:" in read(place / "gids" / str(index)):
            yield f"GID {index}"
