"""What ``ibstat`` prints, as data: adapters and their ports. Pure; never raises, whatever the text.

The layout is that of infiniband-diags in rdma-core, up to v64. Its exit code tells nothing (until v62 a failing read
ends it with 255, later with 0), and without an adapter it prints nothing or an error on standard error only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

#: ``CA 'mlx5_0'``, and ``CA: 'mlx5_0'`` where one device was asked for.
_ADAPTER = re.compile(r"(CA|Switch|Router|iWARP RNIC|\?\?\?):? '([^']*)'$")
_PORT = re.compile(r"Port (\d+):$")
_PAIR = re.compile(r"([A-Za-z][A-Za-z ]*):(?: (.*))?$")
_WIDTH = re.compile(r"\((\d+X)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Port:
    """One port of an adapter. ``values`` is everything that was printed about it, by ibstat's names."""

    adapter: str
    number: int
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return adapter and port as RDMA tools and NCCL write them: ``mlx5_0:1``."""
        return f"{self.adapter}:{self.number}"

    @property
    def state(self) -> str:
        """Return the logical state: Down, Initializing, Armed or Active; empty where it was not printed."""
        return self.values.get("State", "")

    @property
    def physical_state(self) -> str:
        """Return the physical state: LinkUp, Polling, Disabled, ..."""
        return self.values.get("Physical state", "")

    @property
    def link_layer(self) -> str:
        """Return InfiniBand or Ethernet. ``IB`` is what ibstat prints where the kernel does not tell."""
        told = self.values.get("Link layer", "")
        return "InfiniBand" if told == "IB" else told

    @property
    def both_states(self) -> str:
        """The logical and the physical state, as people name them together: ``Down/Polling``."""
        return f"{self.state}/{self.physical_state}"

    @property
    def rate(self) -> float | None:
        """Return the rate in Gb/s, from ``400``, ``2.5``, ``40 (FDR10)`` or ``100 Gb/sec (4X EDR)``.

        A port that is down prints a rate, too; it means nothing.
        """
        found = _NUMBER.match(self.values.get("Rate", ""))
        return float(found[0]) if found else None

    @property
    def width(self) -> str:
        """Return the lanes as ``4X``; empty where they are not told, as ibstat does not."""
        found = _WIDTH.search(self.values.get("Rate", ""))
        return found[1] if found else ""

    @property
    def subnet_manager(self) -> int | None:
        """Return the subnet manager's local identifier: 0 where there is none, None where it was not printed."""
        told = self.values.get("SM lid", "")
        return int(told) if told.isdecimal() else None


@dataclass(frozen=True)
class Adapter:
    """One device. ``type`` and ``firmware`` are empty for software ones."""

    name: str
    kind: str = "CA"
    values: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[Port, ...] = ()

    @property
    def type(self) -> str:
        """Return the vendor's part, as MT4129."""
        return self.values.get("CA type", "")

    @property
    def firmware(self) -> str:
        """Return the firmware's version."""
        return self.values.get("Firmware version", "")

    @property
    def complete(self) -> bool:
        """Tell whether as many ports were printed as the device has: False where the text was cut off."""
        return self.values.get("Number of ports", "") == str(len(self.ports)) and all(port.state for port in self.ports)


def parse(text: str) -> tuple[Adapter, ...]:
    """Return the adapters that ``ibstat`` printed; none for an empty text or an error message. Unknown lines stay."""
    adapters: list[tuple[str, str, dict[str, str], list[tuple[int, dict[str, str]]]]] = []
    values: dict[str, str] | None = None
    for line in (line.strip() for line in text.splitlines()):
        if found := _ADAPTER.match(line):
            values = {}
            adapters.append((found[2], found[1], values, []))
        elif adapters and (found := _PORT.match(line)):
            values = {}
            adapters[-1][3].append((int(found[1]), values))
        elif values is not None and (found := _PAIR.match(line)):
            values[found[1]] = (found[2] or "").strip()
    return tuple(
        Adapter(name, kind, about, tuple(Port(name, number, told) for number, told in ports))
        for name, kind, about, ports in adapters
    )
