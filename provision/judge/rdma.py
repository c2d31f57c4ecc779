"""A machine's RDMA devices as the kernel itself shows them, and what surrounds them. Pure judgement.

``found`` is what the module ``machine_facts`` reports under ``rdma``. The kernel's files are the sturdier source;
``ibstat`` is what people look at, so that it says the same is a check of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from provision.judge.rdma_ports import SUBJECT
from provision.judge.rdma_ports import checks as port_checks
from provision.model.checks import Check, Code, Detail, Verdict
from provision.rdma.expected import Expected, expected
from provision.rdma.ibstat import Adapter, Port, parse

__all__ = ["SUBJECT", "adapters_of", "checks", "ofed", "presence"]

#: Why nothing is asked about a machine without an RDMA device.
_NO_DEVICE = "no RDMA device"
_DRIVER = "dmesg | grep -iE 'mlx|infiniband|rdma'; modprobe the adapter's driver (mlx5_ib)"


def adapters_of(found: Mapping[str, Any]) -> tuple[Adapter, ...]:
    """Return the kernel's devices in the form of ibstat's."""
    return tuple(
        Adapter(
            str(device["name"]),
            str(device["node_type"] or "CA"),
            {
                "CA type": str(device["board"]),
                "Firmware version": str(device["firmware"]),
                "Number of ports": str(len(device["ports"])),
            },
            tuple(_port(str(device["name"]), port) for port in device["ports"]),
        )
        for device in found.get("devices", ())
    )


def _port(device: str, port: Mapping[str, Any]) -> Port:
    rate = "" if port["rate"] is None else f"{port['rate']:g} Gb/sec" + (f" ({port['width']})" if port["width"] else "")
    told = {"State": "state", "Physical state": "physical_state", "SM lid": "sm_lid", "Link layer": "link_layer"}
    values = {name: str(port[key]) for name, key in told.items()}
    return Port(device, int(port["number"]), {**values, "Rate": rate})


def presence(found: Mapping[str, Any], install: str) -> Check:
    """Say which adapters a machine has, and that nothing is done where it has none."""
    adapters = [str(name) for name in found["adapters"]]
    if not _wanted(found, install):
        return SUBJECT.skip("adapters", "switched off by the inventory" if install == "never" else "no RDMA adapter")
    observed = ", ".join(adapters) or "none, prepared all the same"
    return SUBJECT.check("adapters", True, observed, source="rdma_userspace_install")


def _wanted(found: Mapping[str, Any], install: str) -> bool:
    return install == "always" or (install == "auto" and bool(found["adapters"]))


def ofed(found: Mapping[str, Any], asked: Mapping[str, Any]) -> Check:
    """Refuse an OFED whose origin could not be verified, or that another one is in the way of.

    ``asked``: ``kind`` (none, doca), ``version``, ``fingerprints``.
    """
    if asked["kind"] == "none":
        return SUBJECT.skip("ofed", "the inventory asks for the distribution's own drivers and libraries")
    wrong = []
    if not asked["version"]:
        wrong.append(("no release is named", "set rdma_userspace_ofed_version, for example 3.2.0"))
    if not asked["fingerprints"]:
        wrong.append(
            ("the key's fingerprint is not known", "look it up at NVIDIA's, set rdma_userspace_ofed_fingerprints")
        )
    other = found.get("ofed") or {"kind": "", "version": ""}
    if other["kind"] == "MLNX_OFED":
        wrong.append((f"MLNX_OFED {other['version']} is installed", "remove it first: ofed_uninstall.sh --force"))
    return SUBJECT.check(
        "ofed",
        not wrong,
        "; ".join(what for what, _ in wrong) or f"DOCA {asked['version']}, its key pinned",
        "a named release, a pinned key, no other OFED",
        source="rdma_userspace_ofed",
        cause="nothing was changed",
        fix="; ".join(fix for _, fix in wrong),
    )


def checks(found: Mapping[str, Any], group: Expected, settings: Mapping[str, Any]) -> list[Check]:
    """Return the checks of one machine; ``group`` is what most machines have.

    ``settings``: ``wanted`` (auto, always, never), ``declared``, ``memlock`` (``unlimited``, or KiB), ``simulated``,
    and ``ofed`` as :func:`ofed` takes it.
    """
    adapters, install = adapters_of(found), str(settings["wanted"])
    if not found["adapters"]:
        # What others have says nothing about a machine that has none on its bus and was never said to have one.
        group = replace(group, ports=None)
    result = [presence(found, install), ofed(found, settings["ofed"]), _driver(found)]
    result += port_checks(adapters, expected(settings["declared"], group))
    if _wanted(found, install):
        result += [_packages(found), _modules(found)]
    else:
        result += [SUBJECT.skip(name, "nothing is installed for RDMA here") for name in ("packages", "modules")]
    if adapters:
        result += [_ibstat(found, adapters), _files(found), _memlock(found, str(settings["memlock"]))]
    else:
        result += [SUBJECT.skip(name, _NO_DEVICE) for name in ("ibstat", "device_files", "memlock")]
    simulated = bool(settings["simulated"]) or any(device["software"] for device in found["devices"])
    return [replace(check, simulated=simulated) for check in result]


def _driver(found: Mapping[str, Any]) -> Check:
    """An adapter on the bus that no driver has made a device of is not the same as no adapter."""
    if not found["adapters"]:
        return SUBJECT.skip("driver", "no RDMA adapter")
    driven = {device["address"] for device in found.get("devices", ())}
    idle = [str(address) for address in found.get("on_bus", ()) if address not in driven]
    return SUBJECT.check(
        "driver",
        not idle,
        f"no driver runs {', '.join(idle)}" if idle else "every adapter is an RDMA device",
        "an RDMA device for every adapter on the bus",
        source="/sys/class/infiniband",
        cause="the driver is not loaded, or refuses the adapter (firmware, Secure Boot)",
        fix=_DRIVER,
    )


def _ibstat(found: Mapping[str, Any], adapters: Sequence[Adapter]) -> Check:
    text = found.get("ibstat")
    told = {port.name: port for adapter in parse(str(text or "")) for port in adapter.ports}
    differ = []
    for port in (port for adapter in adapters for port in adapter.ports):
        other = told.get(port.name)
        if other is None:
            differ.append(f"{port.name} is missing")
        elif (other.state, other.physical_state) != (port.state, port.physical_state):
            differ.append(
                f"{port.name} {other.state}/{other.physical_state}, the kernel says {port.state}/{port.physical_state}"
            )
        elif other.rate is not None and port.rate is not None and abs(other.rate - port.rate) >= 1:
            differ.append(f"{port.name} rate {other.rate:g}, the kernel says {port.rate:g}")
    if not text:
        differ = ["it cannot be run" if text is None else "it prints nothing"]
    return SUBJECT.check(
        "ibstat",
        Verdict.UNKNOWN if not text else Verdict.WARN if differ else Verdict.PASS,
        observed="; ".join(differ[:5]) or "the same as the kernel",
        expected="what the kernel's files say",
        source="/sys/class/infiniband",
        cause="infiniband-diags or the module ib_umad is missing" if not text else "the link is changing, or flaps",
        fix=SUBJECT.fix if not text else "ibstat again; dmesg | grep -i 'link'",
    )


def _packages(found: Mapping[str, Any]) -> Check:
    lacking = list(found["lacking"])
    return SUBJECT.check(
        "packages",
        not lacking,
        observed=f"missing: {', '.join(lacking)}" if lacking else "all installed",
        expected="all installed",
        source="rdma_userspace_packages",
        cause="removed, or never installed",
        details=[Detail(Code.MISSING, name) for name in lacking],
    )


def _modules(found: Mapping[str, Any]) -> Check:
    """Without an adapter there may be no such modules on the machine; then only what is for the next boot is judged."""
    missing = [f"{name} is not loaded" for name in found["unloaded"] if found["devices"]]
    if not found["configured"].get("ib_umad"):
        missing.append("nothing loads ib_umad at boot")
    return SUBJECT.check(
        "modules",
        not missing,
        observed="; ".join(missing)
        or ("loaded, at boot too" if found["devices"] else "at boot; no adapter needs them"),
        expected="ib_umad, ib_uverbs and rdma_ucm, at boot too",
        source="rdma_userspace",
        cause="ibstat, and programs that move data, speak to adapters through them",
    )


def _files(found: Mapping[str, Any]) -> Check:
    closed = [f"{path} {mode}" for path, mode in found["device_files"].items() if mode[-1] not in "67"]
    return SUBJECT.check(
        "device_files",
        not closed if found["device_files"] else Verdict.UNKNOWN,
        observed=", ".join(closed[:5]) or ", ".join(found["device_files"]) or "none",
        expected="open to all users",
        source="/etc/udev/rules.d/90-clusterctl-rdma.rules",
        cause="jobs of ordinary users cannot reach the adapter",
        fix=f"{SUBJECT.fix}; or udevadm trigger --subsystem-match=infiniband_verbs",
    )


def _memlock(found: Mapping[str, Any], wanted: str) -> Check:
    """A limit as the kernel writes it: bytes, or ``unlimited``; that of a login is in KiB, as ulimit -l prints it."""
    kib = {name: _kib(str(limit)) for name, limit in (found.get("memlock") or {}).items()}
    if login := found.get("login"):
        kib["a login"] = str(login)
    low = {name: limit for name, limit in kib.items() if _less(limit, wanted)}
    shown = {{"slurmd": "jobs (slurmd)"}.get(name, name): limit for name, limit in (low or kib).items()}
    return SUBJECT.check(
        "memlock",
        not low if kib else Verdict.UNKNOWN,
        observed=", ".join(f"{name} {limit}{'' if limit == 'unlimited' else ' KiB'}" for name, limit in shown.items())
        or "no limit could be read",
        expected=wanted if wanted == "unlimited" else f"{wanted} KiB, the most that this machine allows",
        source="base_system_memlock",
        cause='RDMA locks the memory that it moves: "cannot allocate memory", ibv_reg_mr fails',
        fix="clusterctl provision base, then slurm; a daemon keeps the limit that it was started with: restart it",
    )


def _kib(limit: str) -> str:
    return str(int(limit) // 1024) if limit.isdigit() else limit


def _less(limit: str, wanted: str) -> bool:
    if limit == "unlimited" or not limit.isdigit():
        return False
    return wanted == "unlimited" or (wanted.isdigit() and int(limit) < int(wanted))
