"""Are a machine's RDMA ports up, at full rate, and managed? The part of ``rdma`` that speaks about ports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from provision.model.checks import Check, Subject, Verdict
from provision.rdma.expected import Expected
from provision.rdma.ibstat import Adapter, Port

#: The checks that :func:`checks` gives; the rest are of the machine around its ports.
PORTS = ("ports", "state", "rate", "link_layer", "width", "subnet_manager")

SUBJECT = Subject(
    "rdma",
    ("adapters", "ofed", "driver", *PORTS, "packages", "modules", "ibstat", "device_files", "memlock"),
    fix="clusterctl provision rdma",
)

#: A port to which nothing is connected, or that is switched off: where most machines have it so, nobody uses it.
_UNPLUGGED = frozenset({"Down/Polling", "Down/Disabled"})


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


def checks(adapters: Sequence[Adapter], expected: Expected, *, problem: str = "") -> list[Check]:
    """Return the checks of one machine's ports.

    ``problem`` is why nothing could be asked; where it is given nothing is concluded from there being no adapter. A
    machine of which nothing is expected and that has no adapter is asked nothing.
    """
    every = [port for adapter in adapters for port in adapter.ports]
    if not every and not expected.ports and not problem:
        return [SUBJECT.skip(name, "no RDMA adapter") for name in PORTS]
    found = [_ports(adapters, every, expected, problem)]
    connected = any(port.state == "Active" for port in every)
    idle = [port for port in every if connected and _idle(port, expected)]
    used = [port for port in every if port not in idle and not expected.leaves_out(port)]
    if not used:
        why = "every port is left out by node_rdma_unused" if every else "no port to look at"
        return [*found, *(SUBJECT.skip(name, why, unproven=not every) for name in PORTS[1:])]
    found.append(_state(used, idle))
    active = [port for port in used if port.state == "Active"]
    if not active:
        return [*found, *(SUBJECT.skip(name, "no port is active", unproven=True) for name in PORTS[2:])]
    return [*found, _rate(active, expected), _link_layer(active, expected), _width(active, expected), _managed(active)]


def _idle(port: Port, expected: Expected) -> bool:
    """Tell whether a port has no cable on most machines, as the second port of many adapters."""
    return port.both_states in _UNPLUGGED and expected.of(port).state == port.both_states


def _listed(ports: Iterable[Port], words: Mapping[str, str]) -> str:
    return "; ".join(f"{port.name} {words[port.name]}" for port in ports)


def _each(ports: Sequence[Port], values: Sequence[object], unit: str = "") -> str:
    """Return what ports should be: one value where it is the same for all of them."""
    words = [f"{value:g}{unit}" if isinstance(value, int | float) else str(value or "any") for value in values]
    if len(set(words)) == 1:
        return words[0]
    return "; ".join(f"{port.name} {word}" for port, word in zip(ports, words, strict=True))


def _ports(adapters: Sequence[Adapter], ports: Sequence[Port], expected: Expected, problem: str) -> Check:
    cut_off = [adapter.name for adapter in adapters if not adapter.complete]
    verdict: Verdict | bool
    if problem or cut_off:
        verdict, observed = Verdict.UNKNOWN, problem or f"the answer about {', '.join(cut_off)} is incomplete"
    else:
        verdict = expected.ports in (None, len(ports))
        observed = f"{len(ports)} ({', '.join(port.name for port in ports)})" if ports else "no RDMA adapter"
    return SUBJECT.check(
        "ports",
        verdict,
        observed,
        "any number" if expected.ports is None else expected.ports,
        source=expected.source,
        cause="ibstat could not be asked"
        if verdict is Verdict.UNKNOWN
        else "an adapter is missing, or its driver is not loaded",
        fix="lspci -d 15b3:; lsmod | grep mlx5_ib; dmesg | grep mlx5",
    )


def _state(used: Sequence[Port], idle: Sequence[Port]) -> Check:
    wrong = [port for port in used if (port.state, port.physical_state) != ("Active", "LinkUp")]
    reasons = {port.name: _reason(port) for port in wrong}
    fixes = list(dict.fromkeys(fix for _, fix in reasons.values()))
    if any(port.both_states in _UNPLUGGED for port in wrong):
        fixes.append("a port that nobody uses is named in node_rdma_unused")
    without = f"; no cable on most machines: {', '.join(port.name for port in idle)}" if idle else ""
    return SUBJECT.check(
        "state",
        not wrong,
        (_listed(wrong, {port.name: port.both_states for port in wrong}) or "all Active/LinkUp") + without,
        "all Active/LinkUp",
        source="ibstat",
        cause="; ".join(dict.fromkeys(cause for cause, _ in reasons.values())),
        fix="; ".join(fixes),
    )


def _look_at(ports: Iterable[Port]) -> str:
    """Return the commands that show the links of these ports' adapters."""
    return "; ".join(f"mlxlink -d {name}" for name in dict.fromkeys(port.adapter for port in ports))


def _rate(active: Sequence[Port], expected: Expected) -> Check:
    rates = {port.name: expected.of(port).rate for port in active}
    slow = [port for port in active if port.rate is None or port.rate < (rates[port.name] or 0)]
    unread = [port for port in slow if port.rate is None]
    return SUBJECT.check(
        "rate",
        Verdict.UNKNOWN if unread and len(unread) == len(slow) else not slow,
        _listed(slow or active, {port.name: port.values.get("Rate", "") or "prints none" for port in active}),
        _each(slow or active, [rates[port.name] for port in slow or active], " Gb/s"),
        source=expected.source,
        cause="the link runs with fewer lanes or more slowly than it could: cable, transceiver, switch port, setting",
        fix=f"{_look_at(slow)}; swap the cable",
    )


def _width(active: Sequence[Port], expected: Expected) -> Check:
    if not any(port.width for port in active):
        return SUBJECT.skip("width", "the ports do not say how many lanes they have", unproven=True)
    narrow = [port for port in active if expected.of(port).width not in (None, port.width)]
    return SUBJECT.check(
        "width",
        not narrow,
        _listed(narrow or active, {port.name: port.width or "not known" for port in active}),
        _each(narrow or active, [expected.of(port).width for port in narrow or active]),
        source=expected.source,
        cause="the link has lost lanes: a cable that is not fully seated, or a broken one",
        fix=f"{_look_at(narrow)}; reseat the cable on both sides, then swap it",
    )


def _link_layer(active: Sequence[Port], expected: Expected) -> Check:
    wanted = {port.name: expected.of(port).link_layer for port in active}
    wrong = [port for port in active if wanted[port.name] not in (None, port.link_layer)]
    values = {"InfiniBand": "1", "Ethernet": "2"}
    commands = [
        f"mlxconfig -d {port.adapter} set LINK_TYPE_P{port.number}={values.get(wanted[port.name] or '', '?')}"
        for port in wrong
    ]
    return SUBJECT.check(
        "link_layer",
        not wrong,
        _listed(wrong or active, {port.name: port.link_layer or "prints none" for port in active}),
        _each(wrong or active, [wanted[port.name] for port in wrong or active]),
        source=expected.source,
        cause="the port is set to the other type, or it is one for storage that jobs do not use",
        fix="; ".join(commands) + "; reboot; or name it in node_rdma_unused",
    )


def _managed(active: Sequence[Port]) -> Check:
    fabric = [port for port in active if port.link_layer == "InfiniBand"]
    if not fabric:
        return SUBJECT.skip("subnet_manager", "Ethernet needs none")
    without = [port for port in fabric if not port.subnet_manager]
    return SUBJECT.check(
        "subnet_manager",
        not without,
        ", ".join(f"{port.name} has none" for port in without) or "every InfiniBand port has one",
        "every InfiniBand port has one",
        source="ibstat's SM lid",
        cause="the subnet manager is gone; existing connections last, new ones fail",
        fix="start one (a managed switch's, or on one machine: systemctl enable --now opensm); see it with: sminfo",
    )
