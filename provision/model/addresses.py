"""Addresses and names of machines, and the lines of a hosts file that follow from the inventory. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address
from typing import Any

#: Variables that may hold a machine's address in the cluster; the first that is an address wins.
ADDRESS_VARIABLES = ("base_system_address", "ansible_host", "ansible_ssh_host")


def short(name: str) -> str:
    """Return the first label of a host name in lower case, as ``hostname -s`` prints it."""
    return name.split(".", 1)[0].lower()


def parsed(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address without its scope (``%eth0``); None for what is none."""
    try:
        return ip_address(text.split("%", 1)[0])
    except ValueError:
        return None


def is_loopback(text: str) -> bool:
    """Return whether an address leads back to the machine itself."""
    address = parsed(text)
    return address is not None and address.is_loopback


def same(one: str, other: str) -> bool:
    """Return whether two texts are one address, however it is written."""
    return parsed(one) is not None and parsed(one) == parsed(other)


def hosts_entries(hostvars: Mapping[str, Mapping[str, Any]], hosts: Iterable[str]) -> list[dict[str, Any]]:
    """Return address and names of every host whose address the inventory gives, in the inventory's order.

    A host that is reached by a name is left to DNS and gets no entry; neither does one at a loopback address.
    """
    entries = []
    for host in hosts:
        address = next(filter(parsed, (str(hostvars[host].get(key, "")) for key in ADDRESS_VARIABLES)), host)
        if parsed(address) and not is_loopback(address) and address != host:
            names = [host, short(host)] if "." in host else [host]
            entries.append({"address": address, "names": list(dict.fromkeys(names))})
    return entries


def addresses_in(value: Any) -> set[str]:
    """Return all addresses (IPv4) that stand somewhere in a value: a name of a share, of a registry, a list of them."""
    if isinstance(value, str):
        found = re.findall(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])", value)
        return {text for text in found if (address := parsed(text)) and not address.is_loopback}
    if isinstance(value, Mapping):
        value = value.values()
    return set().union(*map(addresses_in, value)) if isinstance(value, Iterable) else set()


def first_within(network: str, addresses: Iterable[str]) -> str:
    """Return the first of the addresses (IPv4) that a network has, empty for none, or where it is no such network."""
    try:
        own = IPv4Network(network, strict=False)
    except ValueError:
        return ""
    return next((address for address in addresses if (found := parsed(address)) and found in own), "")


def networks_without(pools: Sequence[Mapping[str, Any]], addresses: Iterable[str]) -> list[Mapping[str, Any]]:
    """Return the pools of networks (``base``) that have none of the addresses."""
    found = [address for one in addresses if (address := parsed(one))]
    return [pool for pool in pools if not _has(IPv4Network(pool["base"]), found)]


def _has(network: IPv4Network, addresses: Iterable[IPv4Address | IPv6Address]) -> bool:
    return any(address in network for address in addresses)
