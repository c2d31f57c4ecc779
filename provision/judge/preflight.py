"""Whether a machine can be provisioned, and whether it was prepared as declared: judgements of ``machine_facts``. Pure.

Each function takes the module's ``machine`` mapping and a mapping of settings, and returns check dictionaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

#: What ansible-core 2.19 supports on a managed machine.
OLDEST_PYTHON = (3, 8)

#: Operating systems the roles are written for: id -> versions, by prefix.
SYSTEMS: dict[str, tuple[str, ...]] = {
    "debian": ("12", "13"),
    "ubuntu": ("22.04", "24.04"),
    "rhel": ("9",),
    "rocky": ("9",),
    "almalinux": ("9",),
    "centos": ("9",),
    "ol": ("9",),
}


def check(
    name: str,
    verdict: bool | str,
    observed: object,
    expected: object = "",
    *,
    source: str = "",
    cause: str = "",
    fix: str = "",
) -> dict[str, Any]:
    """Return one check; a verdict of True or False means pass or fail, and a pass has neither cause nor fix."""
    word = {True: "pass", False: "fail"}[verdict] if isinstance(verdict, bool) else verdict
    good = word == "pass"
    return {
        "id": name,
        "verdict": word,
        "observed": str(observed),
        "expected": str(expected),
        "source": source,
        "cause": "" if good else cause,
        "fix": "" if good else fix,
        "level": "host",
        "simulated": False,
    }


def short(name: str) -> str:
    """Return the first label of a host name in lower case, as ``hostname -s`` prints it."""
    return name.split(".", 1)[0].lower()


def is_loopback(address: str) -> bool:
    """Return whether an address leads back to the machine itself; scopes such as ``%eth0`` do not matter."""
    try:
        return ip_address(address.split("%", 1)[0]).is_loopback
    except ValueError:
        return False


def clock(machine: Mapping[str, Any], settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Judge the clock's distance to the controlling computer's by the bound that is nearest to zero."""
    low, high = float(machine["clock_offset"]["low"]), float(machine["clock_offset"]["high"])
    least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    warn, fail = float(settings["clock_warn_seconds"]), float(settings["clock_fail_seconds"])
    verdict = "fail" if least > fail else "warn" if least > warn else "pass"
    return check(
        f"{prefix}.clock",
        verdict,
        f"{(low + high) / 2:+.1f} s (between {low:+.1f} and {high:+.1f})",
        f"within {warn:g} s of the controlling computer",
        source=f"{prefix}_clock_warn_seconds, {prefix}_clock_fail_seconds",
        cause="the clocks differ; munge refuses credentials that seem old or from the future",
        fix="on the machine: timedatectl; chronyc makestep",
    )


def preflight(machine: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Judge whether a machine can be provisioned.

    ``settings``: ``name`` (in the inventory), ``disk_space`` (list of path, megabytes, purpose),
    ``lock_timeout``, ``clock_warn_seconds``, ``clock_fail_seconds``.
    """
    system, found = machine["os"], []
    version = tuple(int(part) for part in str(machine["python"]).split(".")[:2])
    found.append(check(
        "preflight.python", version >= OLDEST_PYTHON, machine["python"], "3.8 or newer", source="ansible-core 2.19",
        cause="Ansible's modules do not run on it", fix="install a newer python3, or set ansible_python_interpreter",
    ))  # fmt: skip
    known = any(str(system["version"]).startswith(prefix) for prefix in SYSTEMS.get(str(system["id"]), ()))
    found.append(check(
        "preflight.system", known, system["name"] or system["id"],
        ", ".join(f"{name} {'/'.join(versions)}" for name, versions in SYSTEMS.items()), source="the roles' tables",
        cause="the roles have no package names for this system", fix="install one of the supported systems",
    ))  # fmt: skip
    found.append(check(
        "preflight.systemd", bool(machine["systemd"]), "running" if machine["systemd"] else "not running", "running",
        cause="services are started by systemd", fix="boot the machine with systemd as process 1",
    ))  # fmt: skip
    found.append(check(
        "preflight.root", machine["uid"] == 0, f"uid {machine['uid']}", "uid 0", source="become",
        cause="becoming root did not work", fix="check ansible_become and the user's sudo rules",
    ))  # fmt: skip
    found += _disks(machine["disks"], settings["disk_space"])
    found += _packages(machine, settings)
    found.append(clock(machine, settings, "preflight"))
    found += _names(machine, str(settings["name"]))
    slurm = list(machine["slurm_daemons"])
    found.append(check(
        "preflight.foreign_slurm", not slurm, ", ".join(slurm) or "none", "none",
        cause="a Slurm that was not installed by these roles uses the same ports and directories",
        fix="move its jobs away, then on the machine: systemctl disable --now slurmd slurmctld slurmdbd",
    ))  # fmt: skip
    if "hardware" in machine:
        modern = machine["hardware"]["cgroup_version"] == 2
        found.append(check(
            "preflight.cgroup", "pass" if modern else "warn", f"v{machine['hardware']['cgroup_version']}", "v2",
            cause="without pure cgroup v2 Slurm cannot confine a job to its GPUs, nor keep it when slurmd restarts",
            fix="add systemd.unified_cgroup_hierarchy=1 to the kernel's command line and reboot",
        ))  # fmt: skip
    return found


def _disks(disks: Mapping[str, Any], wanted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add up what is needed on each file system: two paths on one disk cannot use the same space.

    A path that already holds something was filled by an earlier run; it no longer needs its space.
    """
    found, by_device = [], dict[Any, list[Mapping[str, Any]]]()
    for entry in wanted:
        if entry["path"] in disks:
            by_device.setdefault(disks[entry["path"]]["device"], []).append(entry)
    for entries in by_device.values():
        open_ones = [entry for entry in entries if entry.get("always") or not disks[entry["path"]]["used"]]
        needed = sum(int(entry["megabytes"]) for entry in open_ones)
        free = int(disks[entries[0]["path"]]["free"])
        purposes = ", ".join(f"{entry['path']} {entry['megabytes']} MB ({entry['purpose']})" for entry in open_ones)
        found.append(check(
            "preflight.disk_space", free >= needed, f"{free} MB free", f"{needed} MB: {purposes}",
            source="preflight_disk_space", cause="the file system is too full or too small",
            fix=f"df -h {entries[0]['path']}; make room (journalctl --vacuum-size=100M; apt-get clean) or enlarge it",
        ))  # fmt: skip
    return found


def _packages(machine: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    holder, waited = machine["lock"]["holder"], machine["lock"]["waited"]
    who = f"held by pid {holder['pid']}: {str(holder['command'])[:120]}" if holder else "free"
    broken = list(machine["packages_interrupted"])
    return [
        check(
            "preflight.package_lock", not holder, f"{who} (waited {waited} s)" if waited else who, "free",
            source="preflight_lock_timeout", cause="another package manager is at work, often unattended-upgrades",
            fix="wait for it to end, or raise preflight_lock_timeout",
        ),
        check(
            "preflight.packages", "warn" if broken else "pass", ", ".join(broken) or "all complete", "all complete",
            cause="an earlier installation was interrupted",
            fix="nothing to do: the stage 'base' finishes it with dpkg --configure -a",
        ),
    ]  # fmt: skip


def _names(machine: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    host = str(machine["hostname"])
    own = list(machine["addresses"].get(host) or [])
    good = bool(own) and not any(is_loopback(address) for address in own)
    return [
        check(
            "preflight.hostname", short(host) == short(name), host, short(name), source="the name in the inventory",
            cause="Slurm's daemons look for themselves under the machine's own name",
            fix=f"on the machine: hostnamectl set-hostname {short(name)}; or rename it in the inventory",
        ),
        check(
            "preflight.own_name", "pass" if good else "warn", ", ".join(own) or f"{host} has no address",
            "an address that other machines can use",
            cause="a machine that calls itself 127.x offers that address to the others",
            fix="nothing to do: the stage 'base' repairs the hosts file",
        ),
    ]  # fmt: skip
