# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Which RDMA adapters and which GIDs NCCL takes, and what it has to be told where its own choice is wrong."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Mapping, Tuple

from torchrun_slurm.network import Listed

#: Where the kernel shows adapters: Documentation/ABI/stable/sysfs-class-infiniband.
ROOT = "/sys/class/infiniband"

Version = Tuple[int, ...]

#: From this release on NCCL chooses a GID of RoCE v2 with an IPv4 address by itself; before, it takes number 0.
CHOOSES: Version = (2, 21)

#: NCCL as a package of Python's, which PyTorch's own wheels load.
PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")


def nccl(environment: Mapping[str, str]) -> Version:
    """Return the release of NCCL that a training here loads, (2, 19, 3); () where that cannot be told.

    What is not a package of Python's is an image's of NVIDIA's, which has NCCL_VERSION.
    """
    for name in PACKAGES:
        try:
            text = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        return numbers(text)
    return numbers(environment.get("NCCL_VERSION", ""))


def numbers(text: str) -> Version:
    """Return the numbers of a version: 2.19.3-1+cuda12.3 -> (2, 19, 3)."""
    found = re.match(r"\d+(\.\d+)+", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def read(path: Path) -> str:
    """Return a file's text without its ends, nothing where it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


class Port:
    """A port of an adapter that is up."""

    def __init__(self, place: Path, environment: Mapping[str, str]) -> None:
        self._place, self._environment = place, environment
        self.device, self.name = place.parts[-3], f"{place.parts[-3]}:{place.name}"
        self.roce = read(place / "link_layer") == "Ethernet"
        self.taken = Listed(environment.get("NCCL_IB_HCA", "")).has(self.device, place.name)

    def kind(self, index: int) -> str:
        """Return what a GID is, nothing where it is empty."""
        kind = read(self._place / "gid_attrs" / "types" / str(index))
        family = "IPv4" if ":ffff:" in read(self._place / "gids" / str(index)) else "IPv6"
        return kind and f"{kind}, {family}"

    def routed(self) -> list[int]:
        """Return the numbers of its GIDs of RoCE of version 2 with an IPv4 address."""
        types = self._place / "gid_attrs" / "types"
        indexes = sorted(int(path.name) for path in types.iterdir()) if types.is_dir() else []
        return [index for index in indexes if self.kind(index) == "RoCE v2, IPv4"]

    def told(self, version: Version, ours: str) -> str:
        """Return in words whether NCCL takes it, and by which GID. ``ours``: the number that is set here."""
        if not self.taken:
            return f"{self.name} left out by NCCL_IB_HCA={self._environment['NCCL_IB_HCA']}"
        rate = read(self._place / "rate").partition(" (")[0]
        if not self.roce:
            return f"{self.name} InfiniBand {rate}"
        traffic = self._environment.get("NCCL_IB_TC", "")
        line = f"{self.name} RoCE {rate}, {self._gid(version, ours)}"
        return line + (f", traffic class {traffic} (NCCL_IB_TC)" if traffic else "")

    def _gid(self, version: Version, ours: str) -> str:
        asked = self._environment.get("NCCL_IB_GID_INDEX", "")
        release = ".".join(map(str, version))
        if asked.isdigit():
            kind = self.kind(int(asked))
            return f"GID {asked}: {kind} (NCCL_IB_GID_INDEX)" if kind else f"GID {asked} by NCCL_IB_GID_INDEX is empty"
        if ours:
            return f"GID {ours}: {self.kind(int(ours))} (set here: NCCL {release} takes 0 by itself)"
        routed = self.routed()
        if not routed:
            without = f"give its interface one, or leave the port out: NCCL_IB_HCA=^={self.device}"
            return f"no GID of RoCE v2 with an IPv4 address ({without})"
        if version and version < CHOOSES and 0 not in routed:
            better = "NCCL 2.21, or NCCL_IB_HCA with ports of one number"
            return f"GID 0: {self.kind(0)}, where {routed[0]} would be right, which is not so on all ports ({better})"
        several = f", the first of {len(routed)} such: NCCL_IB_GID_INDEX for another" if len(routed) > 1 else ""
        return f"GID {routed[0]}: RoCE v2, IPv4{several}"


def ports(environment: Mapping[str, str], root: str = "") -> list[Port]:
    """Return the ports that are up. ``root``: where they are shown, if not at :data:`ROOT`."""
    places = sorted(Path(root or ROOT).glob("*/ports/*"))
    return [Port(place, environment) for place in places if "ACTIVE" in read(place / "state")]


def disabled(environment: Mapping[str, str]) -> bool:
    """Tell whether NCCL is told to take none."""
    return environment.get("NCCL_IB_DISABLE", "0") not in ("", "0")


def gid_index(environment: Mapping[str, str], root: str = "") -> str:
    """Return what NCCL_IB_GID_INDEX is to be here, nothing where NCCL's own choice is right, or the user's stands.

    It is one number for all ports, so they must agree on it.
    """
    if environment.get("NCCL_IB_GID_INDEX") or disabled(environment):
        return ""
    fitting = [set(port.routed()) for port in ports(environment, root) if port.taken and port.roce]
    common = set.intersection(*fitting) if fitting else set()
    if not common or 0 in common:
        return ""
    version = nccl(environment)
    return str(min(common)) if version and version < CHOOSES else ""


def adapters(environment: Mapping[str, str], root: str = "", ours: str = "") -> list[str]:
    """Return the ports that are up, in words: whether NCCL takes each, and of RoCE by which GID.

    NCCL takes every port that is ACTIVE and that NCCL_IB_HCA does not leave out. ``ours``: what :func:`gid_index` says.
    """
    up = ports(environment, root)
    if up and disabled(environment):
        return [f"NCCL_IB_DISABLE={environment['NCCL_IB_DISABLE']}: no RDMA"]
    version = nccl(environment) if up else ()
    return [port.told(version, ours) for port in up]
