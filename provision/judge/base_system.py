"""What the role ``base_system`` writes, and the judgement of what it left behind. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any

from provision.judge.preflight import check, clock, is_loopback, short

#: Variables that may hold a machine's address in the cluster, the first that is an address wins.
_ADDRESSES = ("base_system_address", "ansible_host", "ansible_ssh_host")


def hosts_entries(hostvars: Mapping[str, Mapping[str, Any]], hosts: Iterable[str]) -> list[dict[str, Any]]:
    """Return address and names of every host whose address the inventory gives, in the inventory's order.

    A host that is reached by a name already resolves and gets no entry; neither does one at a loopback address.
    """
    entries = []
    for host in hosts:
        address = next(filter(_is_address, (str(hostvars[host].get(key, "")) for key in _ADDRESSES)), host)
        if _is_address(address) and not is_loopback(address) and address != host:
            names = [host, short(host)] if "." in host else [host]
            entries.append({"address": address, "names": list(dict.fromkeys(names))})
    return entries


def memlock(wanted: str, highest: str) -> str:
    """Return the locked memory limit to set (KiB or ``unlimited``): what is wanted, but not more than is possible."""
    if highest == "unlimited":
        return str(wanted)
    return highest if str(wanted) == "unlimited" else str(min(int(wanted), int(highest)))


def judge(
    machine: Mapping[str, Any], entries: Iterable[Mapping[str, Any]], settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Judge names, clock, time service, packages and limits of a prepared machine.

    ``settings``: ``name`` (in the inventory), ``memlock``, ``time_service``, ``clock_warn_seconds``,
    ``clock_fail_seconds``.
    """
    found = [_names(machine, list(entries), str(settings["name"])), clock(machine, settings, "base_system")]
    found.append(_time(machine, str(settings["time_service"])))
    missing = list(machine["packages_missing"])
    found.append(check(
        "base_system.packages", not missing, f"missing: {', '.join(missing)}" if missing else "all installed",
        "all installed", source="base_system_packages", cause="removed, or never installed",
        fix="clusterctl provision base",
    ))  # fmt: skip
    found.append(_memlock(machine["memlock"], str(settings["memlock"])))
    return found


def _names(machine: Mapping[str, Any], entries: list[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """One check for all names: a thousand of them are not a thousand findings."""
    addresses, wrong = machine["addresses"], []
    for entry in entries:
        for alias in entry["names"]:
            seen = list(addresses.get(alias) or [])
            if entry["address"] not in seen or any(is_loopback(address) for address in seen):
                wrong.append(f"{alias} is {' '.join(seen) or 'unknown'}, declared {entry['address']}")
    own = list(addresses.get(machine["hostname"]) or [])
    if not own or any(is_loopback(address) for address in own):
        wrong.append(f"its own name {machine['hostname']} is {' '.join(own) or 'unknown'}")
    told = "; ".join(wrong[:5]) + (f"; and {len(wrong) - 5} more" if len(wrong) > 5 else "")
    return check(
        "base_system.names",
        not wrong,
        told or f"{len(entries)} names and its own",
        "every machine at its declared address",
        source="ansible_host or base_system_address",
        cause="the hosts file was changed, or an earlier line of it or DNS says otherwise",
        fix=f"on {name}: getent ahosts NAME, remove the other line from /etc/hosts; clusterctl provision base",
    )


def _time(machine: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    running = list(machine["time_daemons"])
    if machine["container"]:
        return check("base_system.time_service", "skip", "a container has its host's clock", source="container")
    if wanted == "none":
        return check("base_system.time_service", "skip", "left to the site", source="base_system_time_service")
    verdict: bool | str = bool(running)
    if running and machine["clock_synchronised"] is False:
        verdict = "warn"
    state = "synchronised" if machine["clock_synchronised"] else "not synchronised yet"
    return check(
        "base_system.time_service",
        verdict,
        f"{', '.join(running)}, {state}" if running else "no time daemon runs",
        "a running daemon, synchronised",
        source="base_system_time_service",
        cause="no time server answers yet" if running else "the service stopped or failed",
        fix="on the machine: chronyc sources; set base_system_time_servers where the usual ones are out of reach",
    )


def _memlock(limits: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    possible = memlock(wanted, str(limits["login_highest"]))
    seen = str(limits["login"])
    reached = seen == "unlimited" or (seen.isdigit() and possible.isdigit() and int(seen) >= int(possible))
    lower = possible != wanted
    verdict: bool | str = "unknown" if not seen else "warn" if reached and lower else reached
    return check(
        "base_system.memlock",
        verdict,
        f"{seen or 'nothing'} (KiB)" if seen != "unlimited" else seen,
        wanted,
        source="base_system_memlock",
        cause="the machine may not raise limits (it lacks CAP_SYS_RESOURCE), so it has the highest that is possible"
        if lower
        else "limits.conf is not applied at login",
        fix="give the machine CAP_SYS_RESOURCE"
        if lower
        else "on the machine: grep -r memlock /etc/security/; pam_limits",
    )


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
