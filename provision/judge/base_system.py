"""Whether a machine was prepared as declared: names, clock, time service, packages, limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provision.judge.clock import clock
from provision.judge.firewall import firewall
from provision.judge.preflight import hostname
from provision.judge.space import space
from provision.model import memlock
from provision.model.addresses import is_loopback, same
from provision.model.checks import Check, Subject, Verdict
from provision.model.engine import DATA_ROOT
from provision.model.facts import MachineFacts, Memlock
from provision.model.text import brief

SUBJECT = Subject(
    "base_system",
    names=("names", "hostname", "clock", "time_service", "interrupted", "limits", "memlock", "firewall", "space"),
    fix="clusterctl provision base",
)

#: What Slurm, container engines, packages, logs and jobs write; homes too, where they are on the machine's own disk.
_WRITTEN = (
    "/", "/home", "/srv/home", "/tmp", "/var/tmp", "/var/log", "/var/spool", "/var/cache/clusterctl",  # noqa: S108
    "/var/lib/clusterctl", "/var/lib/mysql",
)  # fmt: skip


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge a prepared machine: all checks of the subject.

    ``facts`` is what ``machine_facts`` reports of ``system`` and ``hosts``. ``wants``: ``name`` (in the inventory),
    ``hosts`` (list of address and names), ``memlock`` and ``service_memlock`` (what logins and services may lock, in
    KiB), ``time_service``, ``clock_warn_seconds``, ``clock_fail_seconds``, ``firewall`` (as :func:`firewall` takes it).
    """
    return [
        _names(facts, list(wants["hosts"]), str(wants["name"])),
        hostname(SUBJECT, facts, str(wants["name"])),
        clock(SUBJECT, facts, wants),
        _time(facts, str(wants["time_service"])),
        _interrupted(facts["packages_interrupted"]),
        _limits(facts, str(wants["service_memlock"])),
        _memlock(facts["memlock"], str(wants["memlock"])),
        firewall(SUBJECT, facts, wants["firewall"]),
        _space(facts),
    ]


def _space(facts: MachineFacts) -> Check:
    if facts["container"]:
        return SUBJECT.skip("space", "a container has its host's disks")
    fix = "on the machine: df -h {path}; docker system df; journalctl --vacuum-size=500M; remove files or enlarge it"
    engine = facts.get("engine")
    images = engine.get("images_at", DATA_ROOT) if engine else DATA_ROOT
    return space(SUBJECT, facts.get("commands", {}).get("space"), [*_WRITTEN, images], fix=fix)


def _interrupted(packages: Sequence[str]) -> Check:
    return SUBJECT.check(
        "interrupted",
        not packages,
        f"interrupted during {brief(packages)}" if packages else "none",
        "no interrupted installation",
        cause="the machine or the package manager stopped during an installation",
    )


def _limits(facts: MachineFacts, wanted: str) -> Check:
    """Compare what systemd gives services: it reads its settings only when it is told to."""
    manager = facts["state"]["manager"]
    if manager is None:
        return SUBJECT.unknown("limits", "systemd did not answer")
    observed = manager.get("DefaultLimitMEMLOCK", "")
    expected = "infinity" if wanted == "unlimited" else str(int(wanted) * 1024)
    return SUBJECT.check(
        "limits",
        observed == expected,
        f"services may lock {observed or 'an unknown amount'}",
        f"{expected} (bytes)",
        source="base_system_memlock; systemctl show --property=DefaultLimitMEMLOCK",
        cause="systemd has not reloaded its settings since they changed",
    )


def _names(facts: MachineFacts, entries: Sequence[Mapping[str, Any]], name: str) -> Check:
    """Compare the first address of every name, because that is the one which programs take."""
    addresses, wrong, behind = facts["addresses"], [], False
    for entry in entries:
        for alias in entry["names"]:
            answer = list(addresses.get(alias) or [])
            if answer and same(answer[0], entry["address"]):
                continue
            hidden = any(same(address, entry["address"]) for address in answer)
            behind = behind or hidden
            wrong.append(
                f"{alias} is {answer[0]}, and the declared {entry['address']} comes after it"
                if hidden
                else f"{alias} is {' '.join(answer) or 'unknown'}, declared {entry['address']}"
            )
    if not facts["hosts"].get("current"):
        wrong.append(facts["hosts"].get("error") or "the hosts file differs from the declared names")
    own = list(addresses.get(facts["hostname"]) or [])
    if not own or any(is_loopback(address) for address in own):
        wrong.append(f"its own name {facts['hostname']} is {' '.join(own) or 'unknown'}")
    return SUBJECT.check(
        "names",
        not wrong,
        brief(wrong) or f"{len(entries)} names and its own",
        "every machine at its declared address",
        source="ansible_host or base_system_address",
        cause="another address comes before the declared one, and programs take the first"
        if behind
        else "the hosts file was changed, or an earlier line or DNS gives another address",
        fix=f"on {name}: getent ahosts NAME, remove the other line from /etc/hosts; clusterctl provision base",
    )


def _time(facts: MachineFacts, wanted: str) -> Check:
    running = list(facts["time_daemons"])
    if facts["container"]:
        return SUBJECT.skip("time_service", "a container has its host's clock")
    if wanted == "none":
        return SUBJECT.skip("time_service", "left to the site by base_system_time_service")
    verdict = Verdict.PASS if running else Verdict.FAIL
    synchronised = facts["clock_synchronised"]
    if running and not synchronised:
        verdict = Verdict.UNKNOWN if synchronised is None else Verdict.WARN
    state = {
        True: "synchronised",
        False: "not synchronised yet",
        None: "timedatectl does not say whether synchronised",
    }[synchronised]
    return SUBJECT.check(
        "time_service",
        verdict,
        f"{', '.join(running)}, {state}" if running else "no time daemon runs",
        "a running daemon, synchronised",
        source="base_system_time_service",
        cause="no time server answers yet" if running else "the service stopped or failed",
        fix="on the machine: chronyc sources; set base_system_time_servers if the default ones are unreachable",
    )


def _memlock(limits: Memlock, wanted: str) -> Check:
    limit = limits["login"]
    if not memlock.is_limit(limit):
        why = f"'ulimit -l' after a login printed {limit[:100]}" if limit else "nobody could log in"
        return SUBJECT.unknown("memlock", why, cause="the limit of a login is not known")
    highest = memlock.possible(wanted, limits["login_highest"])
    reached, lower = memlock.reaches(limit, highest), highest != wanted
    return SUBJECT.check(
        "memlock",
        Verdict.WARN if reached and lower else reached,
        limit if limit == "unlimited" else f"{limit} (KiB)",
        wanted,
        source="base_system_memlock",
        cause="the machine lacks CAP_SYS_RESOURCE and cannot raise limits, so it has the highest possible one"
        if lower
        else "limits.conf is not applied at login",
        fix="give the machine CAP_SYS_RESOURCE"
        if lower
        else "on the machine: grep -r memlock /etc/security/; pam_limits",
    )
