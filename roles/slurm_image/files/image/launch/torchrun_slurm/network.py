# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""How this machine reaches the others: addresses and interfaces. Nothing is sent."""

from __future__ import annotations

import fcntl
import socket
import struct
from typing import Mapping, NamedTuple

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


class Way(NamedTuple):
    """By which interface the workers of this node meet those of others.

    ``said``: the variable that names it, nothing where routing does. ``problem``: why there is no address.
    """

    name: str
    address: str
    said: str = ""
    problem: str = ""


def interfaces() -> dict[str, str]:
    """Return the IPv4 address of each interface that has one, in the kernel's order."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _, name in socket.if_nameindex():
            try:
                told = fcntl.ioctl(one.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has no IPv4 address
            found[name] = socket.inet_ntoa(told[20:24])
    return found


def way(environment: Mapping[str, str], towards: str) -> Way:
    """Return how workers of this node reach those of others: as NCCL and gloo are told, else as the kernel routes.

    Args:
        environment: the user's, and the site's, variables.
        towards: a name or an address of another node.
    """
    try:
        have = interfaces()
        nccl, gloo = environment.get("NCCL_SOCKET_IFNAME", ""), environment.get("GLOO_SOCKET_IFNAME", "")
        if nccl or gloo:
            variable, value = ("NCCL_SOCKET_IFNAME", nccl) if nccl else ("GLOO_SOCKET_IFNAME", gloo)
            # Where nobody asks for lo by its name, nobody means it. Gloo takes names as they are.
            listed = Listed(nccl) if nccl else Listed(f"={gloo}")
            names = [name for name in have if listed.has(name)]
            names = [name for name in names if name != "lo"] or names
            if names:
                return Way(names[0], have[names[0]], f"{variable}={value}")
            said = f"{variable}={value}: no interface of that name has an IPv4 address here"
            fix = f"ip -4 -brief address there; without {variable} it is found by routing"
            return Way("", "", f"{variable}={value}", f"{said}. {fix}")
        mine = own_address(towards)
        return Way(next((name for name, address in have.items() if address == mine), ""), mine)
    except OSError:
        return Way("", "")


class Listed:
    """A list of names as NCCL reads it: ``^`` before it is all others; ``=`` whole names, else their beginnings.

    Source: NCCL's src/misc/utils.cc (parseStringList, matchIfList).
    """

    def __init__(self, text: str) -> None:
        self._others = text.startswith("^")
        text = text[self._others :]
        self._whole = text.startswith("=")
        text = text[self._whole :]
        self._names = [one.partition(":")[::2] for one in text.split(",") if one]

    def has(self, name: str, port: str = "") -> bool:
        """Tell whether a name, and a port of an adapter, is in it. An empty list has all."""
        named = not self._names or any(
            (name == one if self._whole else name.startswith(one)) and (not port or not of or of == port)
            for one, of in self._names
        )
        return named != self._others


def taken(port: int) -> bool:
    """Tell whether something of this node listens on a port already."""
    try:
        socket.create_server(("", port), reuse_port=False).close()
    except OSError:
        return True
    return False
