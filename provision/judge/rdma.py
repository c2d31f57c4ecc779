"""Are a machine's RDMA ports up, at full rate, and managed? Pure judgement of what ``ibstat`` said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from provision.rdma.ibstat import Adapter, Port


@dataclass(frozen=True)
class Expected:
    """What a machine's ports should be; None leaves a question open. ``rate`` is in Gb/s, ``width`` such as 4X."""

    ports: int | None = None
    rate: float | None = None
    link_layer: str | None = None
    width: str | None = None
    source: str = "the inventory"


def majority(machines: Iterable[Sequence[Adapter]]) -> Expected:
    """Return what most machines of a group have: where nothing is declared, the odd one out is the suspect.

    A tie says nothing, and neither does a group of one machine. Machines without any port have no say: in a group of
    many kinds they are often meant to have none.
    """
    every = [[port for adapter in adapters for port in adapter.ports] for adapters in machines]
    ports = [one for one in every if one]
    active = [[port for port in one if port.state == "Active"] for one in ports]
    return Expected(
        ports=_most([len(one) for one in ports]),
        rate=_most([port.rate for one in active for port in one if port.rate is not None], among=len(ports)),
        link_layer=_most([port.link_layer for one in active for port in one if port.link_layer], among=len(ports)),
        width=_most([port.width for one in active for port in one if port.width], among=len(ports)),
        source="most machines of the group",
    )


def expected(declared: Mapping[str, Any], group: Expected) -> Expected:
    """Return what is declared for a machine, and what its group has where nothing is.

    ``declared`` has ``ports``, ``rate`` and ``link_layer``, None or empty where the inventory says nothing.
    """
    given = {name: declared[name] for name in ("ports", "rate", "link_layer") if declared.get(name) not in (None, "")}
    kinds: dict[str, Any] = {"ports": int, "rate": float, "link_layer": str}
    names = ", ".join(f"node_rdma_{name}" for name in given)
    source = f"{names}; else {group.source}" if given else group.source
    return replace(group, source=source, **{name: kinds[name](value) for name, value in given.items()})


def _most(values: Sequence[Any], among: int | None = None) -> Any:
    """Return the value that more than half have; None where there is none, or only one machine to ask."""
    if (len(values) if among is None else among) < 2 or not values:
        return None
    value, times = Counter(values).most_common(1)[0]
    return value if times * 2 > len(values) else None


#: What a port that is not Active suffers from, by logical and physical state; the first row that fits.
_DOWN: tuple[tuple[str, str, str, str], ...] = (
    (
        *("Initializing", "LinkUp"),
        "the link is up and no subnet manager has configured it",
        "start one (a managed switch's, or on one machine: systemctl enable --now opensm); see it with: sminfo",
    ),
    (
        *("Armed", "LinkUp"),
        "the subnet manager has not finished with the port",
        "wait a minute; then on it: smpquery portinfo",
    ),
    (
        *("Down", "Polling"),
        "the port hears nothing from the other side: cable, transceiver or switch port",
        "reseat the cable, then swap it with one of a port that works; see mlxlink -d DEVICE",
    ),
    (*("Down", "Disabled"), "somebody has disabled the port", "ibportstate LID PORT enable, or set the link up"),
    (*("Down", "Sleep"), "the port sleeps", "ibportstate LID PORT enable"),
    (
        *("Down", "PortConfigurationTraining"),
        "the two sides do not agree on a speed: a cable or transceiver that one of them does not support",
        "compare with mlxlink -d DEVICE -m; use a supported cable",
    ),
    (
        *("Down", "LinkErrorRecovery"),
        "the link keeps failing: a bad cable, transceiver or connector",
        "swap the cable; watch the counters with: perfquery",
    ),
)


def _reason(port: Port) -> tuple[str, str]:
    for state, physical, cause, fix in _DOWN:
        if (state, physical) == (port.state, port.physical_state):
            return cause, fix.replace("DEVICE", port.adapter).replace("PORT", str(port.number))
    return (
        "the port is not in use or its link is broken",
        f"ibstat {port.adapter} {port.number}; dmesg | grep {port.adapter}",
    )


def checks(adapters: Sequence[Adapter], expected: Expected, *, problem: str = "") -> list[dict[str, Any]]:
    """Return the checks of one machine.

    ``problem`` is why nothing could be asked; where it is given nothing is concluded from there being no adapter. A
    machine of which nothing is expected and that has no adapter is asked nothing.
    """
    ports = [port for adapter in adapters for port in adapter.ports]
    if not ports and not expected.ports and not problem:
        return [_check("ports", "skip", observed="no RDMA adapter", expected="none declared", source=expected.source)]
    found = [_ports(adapters, ports, expected, problem)]
    if ports:
        found.append(_state(ports))
    if active := [port for port in ports if port.state == "Active"]:
        found += [_rate(active, expected), _link_layer(active, expected)]
        if any(port.width for port in active):
            found.append(_width(active, expected))
    if any(port.link_layer == "InfiniBand" for port in active):
        found.append(_subnet_manager(active))
    return found


def _check(name: str, verdict: str, **texts: Any) -> dict[str, Any]:
    if verdict in ("pass", "skip"):
        texts.update(cause="", fix="")
    return {"id": f"rdma.{name}", "host": "", "level": "host", "verdict": verdict, **texts}


def _listed(ports: Iterable[Port], told: Mapping[str, str]) -> str:
    return "; ".join(f"{port.name} {told[port.name]}" for port in ports)


def _ports(adapters: Sequence[Adapter], ports: Sequence[Port], expected: Expected, problem: str) -> dict[str, Any]:
    cut_off = [adapter.name for adapter in adapters if not adapter.complete]
    if problem or cut_off:
        verdict, observed = "unknown", problem or f"the answer about {', '.join(cut_off)} is incomplete"
    else:
        verdict = "pass" if expected.ports in (None, len(ports)) else "fail"
        observed = f"{len(ports)} ({', '.join(port.name for port in ports)})" if ports else "no RDMA adapter"
    return _check(
        "ports",
        verdict,
        observed=observed,
        expected="any number" if expected.ports is None else str(expected.ports),
        source=expected.source,
        cause="ibstat could not be asked"
        if verdict == "unknown"
        else "an adapter is missing, or its driver is not loaded",
        fix="lspci -d 15b3:; lsmod | grep mlx5_ib; dmesg | grep mlx5",
    )


def _state(ports: Sequence[Port]) -> dict[str, Any]:
    wrong = [port for port in ports if (port.state, port.physical_state) != ("Active", "LinkUp")]
    reasons = {port.name: _reason(port) for port in wrong}
    return _check(
        "state",
        "fail" if wrong else "pass",
        observed=_listed(wrong, {port.name: f"{port.state}/{port.physical_state}" for port in wrong})
        or "all Active/LinkUp",
        expected="all Active/LinkUp",
        source="ibstat",
        cause="; ".join(dict.fromkeys(cause for cause, _ in reasons.values())),
        fix="; ".join(dict.fromkeys(fix for _, fix in reasons.values())),
    )


def _look_at(ports: Iterable[Port]) -> str:
    """Return the commands that show the links of these ports' adapters."""
    return "; ".join(f"mlxlink -d {name}" for name in dict.fromkeys(port.adapter for port in ports))


def _rate(active: Sequence[Port], expected: Expected) -> dict[str, Any]:
    told = {port.name: port.values.get("Rate", "") or "prints none" for port in active}
    slow = [port for port in active if port.rate is None or (expected.rate is not None and port.rate < expected.rate)]
    unread = [port for port in slow if port.rate is None]
    return _check(
        "rate",
        "unknown" if unread and len(unread) == len(slow) else "fail" if slow else "pass",
        observed=_listed(slow or active, told),
        expected="any" if expected.rate is None else f"{expected.rate:g} Gb/s",
        source=expected.source,
        cause="the link runs with fewer lanes or more slowly than it could: cable, transceiver, switch port, setting",
        fix=f"{_look_at(slow)}; swap the cable",
    )


def _width(active: Sequence[Port], expected: Expected) -> dict[str, Any]:
    narrow = [port for port in active if expected.width not in (None, port.width)]
    return _check(
        "width",
        "fail" if narrow else "pass",
        observed=_listed(narrow or active, {port.name: port.width or "not told" for port in active}),
        expected=expected.width or "any",
        source=expected.source,
        cause="the link has lost lanes: a cable that is not fully seated, or a broken one",
        fix=f"{_look_at(narrow)}; reseat the cable on both sides, then swap it",
    )


def _link_layer(active: Sequence[Port], expected: Expected) -> dict[str, Any]:
    wrong = [port for port in active if expected.link_layer not in (None, port.link_layer)]
    value = {"InfiniBand": "1", "Ethernet": "2"}.get(expected.link_layer or "", "?")
    return _check(
        "link_layer",
        "fail" if wrong else "pass",
        observed=_listed(wrong or active, {port.name: port.link_layer or "prints none" for port in active}),
        expected=expected.link_layer or "any",
        source=expected.source,
        cause="the port is set to the other type",
        fix="; ".join(f"mlxconfig -d {port.adapter} set LINK_TYPE_P{port.number}={value}" for port in wrong)
        + "; reboot",
    )


def _subnet_manager(active: Sequence[Port]) -> dict[str, Any]:
    without = [port for port in active if port.link_layer == "InfiniBand" and not port.subnet_manager]
    return _check(
        "subnet_manager",
        "fail" if without else "pass",
        observed=", ".join(f"{port.name} has none" for port in without) or "every InfiniBand port has one",
        expected="every InfiniBand port has one",
        source="ibstat's SM lid",
        cause="the subnet manager is gone; existing connections last, new ones fail",
        fix="start one (a managed switch's, or on one machine: systemctl enable --now opensm); see it with: sminfo",
    )
