"""A machine's RDMA devices as the kernel itself shows them, and what surrounds them. Pure judgement.

``found`` is what the module ``machine_facts`` reports under ``rdma``. The kernel's files are the sturdier source;
``ibstat`` is what people look at, so that it says the same is a check of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from provision.judge.rdma import Expected, expected
from provision.judge.rdma import checks as port_checks
from provision.rdma.ibstat import Adapter, Port, parse

_PROVISION = "clusterctl provision rdma"
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


def presence(found: Mapping[str, Any], install: str) -> list[dict[str, Any]]:
    """Say which adapters a machine has, and that nothing is done where it has none."""
    adapters = [str(name) for name in found["adapters"]]
    skipped = "told never to be prepared" if install == "never" else "no RDMA adapter"
    wanted = install == "always" or (install == "auto" and adapters)
    return [
        {
            **_check("adapters", "pass" if wanted else "skip", observed=", ".join(adapters) if wanted else skipped),
            "expected": "",
            "source": "rdma_userspace_install",
        }
    ]


def ofed(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Refuse an OFED whose origin could not be verified, or that another one is in the way of."""
    wrong = []
    if not asked["version"]:
        wrong.append(("no release is named", "set rdma_userspace_ofed_version, as 3.2.0"))
    if not asked["fingerprints"]:
        wrong.append(
            ("the key's fingerprint is not known", "look it up at NVIDIA's, set rdma_userspace_ofed_fingerprints")
        )
    other = asked["found"].get("ofed") or {"kind": "", "version": ""}
    if other["kind"] == "MLNX_OFED":
        wrong.append((f"MLNX_OFED {other['version']} is installed", "remove it first: ofed_uninstall.sh --force"))
    return [
        _check(
            "ofed",
            "fail" if wrong else "pass",
            observed="; ".join(what for what, _ in wrong) or f"DOCA {asked['version']}, its key pinned",
            expected="a named release, a pinned key, no other OFED",
            source="rdma_userspace_ofed",
            cause="nothing was changed",
            fix="; ".join(fix for _, fix in wrong),
        )
    ]


def checks(found: Mapping[str, Any], group: Expected, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the checks of one machine; ``group`` is what most machines have.

    ``settings``: ``wanted`` (auto, always, never), ``declared``, ``memlock`` (``unlimited``, or KiB), ``simulated``.
    """
    adapters = adapters_of(found)
    wanted = str(settings["wanted"])
    if not found["adapters"]:
        # What others have says nothing about a machine that has none on its bus and was never said to have one.
        group = replace(group, ports=None)
    result = _devices(found) + port_checks(adapters, expected(settings["declared"], group))
    if wanted == "always" or (wanted == "auto" and found["adapters"]):
        result += [_packages(found), _modules(found)]
    if adapters:
        result += [_ibstat(found, adapters), _files(found), _memlock(found, str(settings["memlock"]))]
    simulated = bool(settings["simulated"]) or any(device["software"] for device in found["devices"])
    return [{**check, "simulated": simulated} for check in result]


def _devices(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An adapter on the bus that no driver has made a device of is not the same as no adapter."""
    driven = {device["address"] for device in found.get("devices", ())}
    idle = [str(address) for address in found.get("on_bus", ()) if address not in driven]
    if not idle:
        return []
    return [
        _check(
            "driver",
            "fail",
            observed=f"no driver runs {', '.join(idle)}",
            expected="an RDMA device for every adapter on the bus",
            source="/sys/class/infiniband",
            cause="the driver is not loaded, or refuses the adapter (firmware, Secure Boot)",
            fix=_DRIVER,
        )
    ]


def _ibstat(found: Mapping[str, Any], adapters: Sequence[Adapter]) -> dict[str, Any]:
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
    return _check(
        "ibstat",
        "unknown" if not text else "warn" if differ else "pass",
        observed="; ".join(differ[:5]) or "the same as the kernel",
        expected="what the kernel's files say",
        source="/sys/class/infiniband",
        cause="infiniband-diags or the module ib_umad is missing" if not text else "the link is changing, or flaps",
        fix=_PROVISION if not text else "ibstat again; dmesg | grep -i 'link'",
    )


def _packages(found: Mapping[str, Any]) -> dict[str, Any]:
    lacking = list(found["lacking"])
    return _check(
        "packages",
        "fail" if lacking else "pass",
        observed=f"missing: {', '.join(lacking)}" if lacking else "all installed",
        expected="all installed",
        source="rdma_userspace_packages",
        cause="removed, or never installed",
        fix=_PROVISION,
    )


def _modules(found: Mapping[str, Any]) -> dict[str, Any]:
    """Without an adapter there may be no such modules on the machine; then only what is for the next boot is judged."""
    missing = [f"{name} is not loaded" for name in found["unloaded"] if found["devices"]]
    if not found["configured"].get("ib_umad"):
        missing.append("nothing loads ib_umad at boot")
    return _check(
        "modules",
        "fail" if missing else "pass",
        observed="; ".join(missing)
        or ("loaded, at boot too" if found["devices"] else "at boot; no adapter needs them"),
        expected="ib_umad, ib_uverbs and rdma_ucm, at boot too",
        source="rdma_userspace",
        cause="ibstat, and programs that move data, speak to adapters through them",
        fix=_PROVISION,
    )


def _files(found: Mapping[str, Any]) -> dict[str, Any]:
    closed = [f"{path} {mode}" for path, mode in found["device_files"].items() if mode[-1] not in "67"]
    return _check(
        "device_files",
        "unknown" if not found["device_files"] else "fail" if closed else "pass",
        observed=", ".join(closed[:5]) or ", ".join(found["device_files"]) or "none",
        expected="open to all users",
        source="/etc/udev/rules.d/90-clusterctl-rdma.rules",
        cause="jobs of ordinary users cannot reach the adapter",
        fix=f"{_PROVISION}; or udevadm trigger --subsystem-match=infiniband_verbs",
    )


def _memlock(found: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    """A limit as the kernel writes it: bytes, or ``unlimited``; that of a login is in KiB, as ulimit -l prints it."""
    kib = {name: _kib(str(limit)) for name, limit in (found.get("memlock") or {}).items()}
    if login := found.get("login"):
        kib["a login"] = str(login)
    low = {name: limit for name, limit in kib.items() if _less(limit, wanted)}
    shown = {{"slurmd": "jobs (slurmd)"}.get(name, name): limit for name, limit in (low or kib).items()}
    return _check(
        "memlock",
        "unknown" if not kib else "fail" if low else "pass",
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


def _check(name: str, verdict: str, **texts: Any) -> dict[str, Any]:
    if verdict == "pass":
        texts.update(cause="", fix="")
    return {"id": f"rdma.{name}", "host": "", "level": "host", "verdict": verdict, **texts}
