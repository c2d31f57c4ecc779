"""What a machine's RDMA ports should be: what is declared for them, else what most machines of the group have. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from provision.rdma.ibstat import Adapter, Port


@dataclass(frozen=True)
class Usual:
    """What a port is on most machines, or what is declared for it; None leaves a question open."""

    state: str | None = None
    rate: float | None = None
    link_layer: str | None = None
    width: str | None = None


@dataclass(frozen=True)
class Expected:
    """What a machine's ports should be; None leaves a question open. ``rate`` is in Gb/s, ``width`` such as 4X.

    ``by_port`` is what most machines have under one port's name (``mlx5_0:1``): machines have ports of several kinds,
    for jobs, for storage, and without a cable. ``unused`` names ports, or adapters, that jobs do not use.
    """

    ports: int | None = None
    rate: float | None = None
    link_layer: str | None = None
    width: str | None = None
    source: str = "the inventory"
    by_port: Mapping[str, Usual] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return what ``dataclasses.asdict`` has made plain."""
        by_port = {str(name): Usual(**usual) for name, usual in plain["by_port"].items()}
        return cls(**{**plain, "by_port": by_port, "unused": tuple(plain["unused"])})

    def of(self, port: Port) -> Usual:
        """Return what one port should be: as on most machines, and where they are divided, as most ports."""
        usual = self.by_port.get(port.name, Usual())
        return Usual(
            usual.state,
            self.rate if usual.rate is None else usual.rate,
            usual.link_layer or self.link_layer,
            usual.width or self.width,
        )

    def leaves_out(self, port: Port) -> bool:
        """Tell whether the inventory says that jobs do not use this port."""
        return port.name in self.unused or port.adapter in self.unused


def majority(machines: Iterable[Sequence[Adapter]]) -> Expected:
    """Return what most machines of a group have: where nothing is declared, the odd one out is the suspect.

    A tie says nothing, and neither does a group of one machine. Machines without any port have no say: in a group of
    many kinds they are often meant to have none.
    """
    every = [[port for adapter in adapters for port in adapter.ports] for adapters in machines]
    with_ports = [one for one in every if one]
    active = [[port for port in one if port.state == "Active"] for one in with_ports]
    named: dict[str, list[Port]] = {}
    for port in (port for one in with_ports for port in one):
        named.setdefault(port.name, []).append(port)
    return Expected(
        ports=_most([len(one) for one in with_ports]),
        rate=_most([port.rate for one in active for port in one if port.rate is not None], among=len(with_ports)),
        link_layer=_most([port.link_layer for one in active for port in one if port.link_layer], among=len(with_ports)),
        width=_most([port.width for one in active for port in one if port.width], among=len(with_ports)),
        source="most machines of the group",
        by_port={name: _usual(ports) for name, ports in named.items() if len(ports) * 2 > len(with_ports)},
    )


def _usual(ports: Sequence[Port]) -> Usual:
    active, number = [port for port in ports if port.state == "Active"], len(ports)
    return Usual(
        state=_most([port.both_states for port in ports]),
        rate=_most([port.rate for port in active if port.rate is not None], among=number),
        link_layer=_most([port.link_layer for port in active if port.link_layer], among=number),
        width=_most([port.width for port in active if port.width], among=number),
    )


def expected(declared: Mapping[str, Any], group: Expected) -> Expected:
    """Return what is declared for a machine, and what its group has where nothing is.

    ``declared`` has ``ports``, ``rate``, ``link_layer`` and ``unused``, None or empty where the inventory says nothing.
    """
    given = {name: declared[name] for name in ("ports", "rate", "link_layer") if declared.get(name) not in (None, "")}
    kinds: dict[str, Any] = {"ports": int, "rate": float, "link_layer": str}
    values = {name: kinds[name](value) for name, value in given.items()}
    names = ", ".join(f"node_rdma_{name}" for name in given)
    of_ports = {name: value for name, value in values.items() if name != "ports"}
    return replace(
        group,
        source=f"{names}; else {group.source}" if given else group.source,
        by_port={name: replace(usual, **of_ports) for name, usual in group.by_port.items()},
        unused=unused_in(declared.get("unused")),
        **values,
    )


def unused_in(value: object) -> tuple[str, ...]:
    """Return the names in a ``node_rdma_unused``: a list, or its items separated by commas."""
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, Sequence) else ()
    return tuple(str(item).strip() for item in items if str(item).strip())


def _most(values: Sequence[Any], among: int | None = None) -> Any:
    """Return the value that more than half have; None where there is none, or only one machine to ask."""
    if (len(values) if among is None else among) < 2 or not values:
        return None
    value, times = Counter(values).most_common(1)[0]
    return value if times * 2 > len(values) else None
