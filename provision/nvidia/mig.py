"""MIG layouts: what the inventory declares, whether it can be, and how nvidia-smi lists what is there. Pure.

A layout is text that fits into an inventory: ``0-3:1g.10gb*7,4:3g.40gb*2`` means seven instances of profile 1g.10gb on
each of the GPUs 0 to 3, and two of 3g.40gb on GPU 4. GPUs that are not named stay whole. An instance is named by three
numbers, ``GPU/GPU instance/compute instance``, as nvidia-smi prints them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

#: Instances of each profile that one GPU can hold, by kind of GPU: NVIDIA's MIG user guide, "Supported MIG Profiles".
#: Profiles that stand nowhere here are not refused: the machine itself is asked before anything is changed.
PROFILES: Mapping[str, Mapping[str, int]] = {
    "A30": {"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1},
    "A100 40GB": {"1g.5gb": 7, "1g.5gb+me": 1, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1},
    "A100 or H100 80GB": {
        **{"1g.10gb": 7, "1g.10gb+me": 1, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}
    },
    "H100 94GB": {
        **{"1g.12gb": 7, "1g.12gb+me": 1, "1g.24gb": 4, "2g.24gb": 3, "3g.47gb": 2, "4g.47gb": 1, "7g.94gb": 1}
    },
    "H100 96GB": {
        **{"1g.12gb": 7, "1g.12gb+me": 1, "1g.24gb": 4, "2g.24gb": 3, "3g.48gb": 2, "4g.48gb": 1, "7g.96gb": 1}
    },
    "H200": {"1g.18gb": 7, "1g.18gb+me": 1, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1},
    "B200": {"1g.23gb": 7, "1g.23gb+me": 1, "1g.45gb": 4, "2g.45gb": 3, "3g.90gb": 2, "4g.90gb": 1, "7g.180gb": 1},
}
#: Compute slices that a GPU has; an A30 has four.
SLICES = 7

_ITEM = re.compile(r"(?P<gpus>\d{1,2}(-\d{1,2})?):(?P<profile>[0-9a-z.+-]+?)(\*(?P<count>\d{1,2}))?")
_PROFILE = re.compile(r"(?P<compute>[1-9])g\.\d{1,3}gb([+-][a-z]+(\.[a-z]+)?)*")
_OF_TYPE = re.compile(r"(?:^|[^a-z0-9])([1-9]g\.\d{1,3}gb)(?:$|[.+-])")
_DEVICE = re.compile(r"(?P<gpu>\d{1,2})/(?P<instance>\d{1,2})/(?P<compute>\d):(?P<profile>[0-9a-z.+-]+)")

_ROW = re.compile(
    r"^\|\s+([0-9]{1,2})\s+([0-9]{1,2})\s+MIG\s+([0-9a-z.+-]{1,40})\s+[0-9]+\s+([0-9]{1,2})\s+(?:[0-9]+:[0-9]+\s*)?\|",
    re.MULTILINE,
)


class Device(NamedTuple):
    """One MIG instance of a machine."""

    gpu: int
    instance: int
    compute: int
    profile: str

    def __str__(self) -> str:
        return f"{self.gpu}/{self.instance}/{self.compute}:{self.profile}"

    @property
    def files(self) -> str:
        """Its device files, as gres.conf's MultipleFiles takes them.

        The driver numbers its capabilities in a fixed way: /proc/driver/nvidia-caps/mig-minors of every machine says
        the same, with 9 numbers to a GPU instance (its own and 8 compute instances) and 15 instances to a GPU.
        """
        access = 3 + self.gpu * 135 + self.instance * 9
        caps = (f"/dev/nvidia-caps/nvidia-cap{number}" for number in (access, access + 1 + self.compute))
        return ",".join([f"/dev/nvidia{self.gpu}", *caps])


def layout(items: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Return the profiles of each GPU that a layout names, the largest first, as they are to be created.

    Raises:
        ValueError: with a sentence about what is wrong.
    """
    wanted: dict[int, Counter[str]] = {}
    for item in items:
        found = _ITEM.fullmatch(item.strip())
        if not found or not _PROFILE.fullmatch(found["profile"]):
            raise ValueError(f"{item.strip()!r} must be GPU:profile*count, for example 0-7:1g.10gb*7")
        first, _, last = found["gpus"].partition("-")
        if int(last or first) < int(first):
            raise ValueError(f"{item.strip()!r} names no GPU: the first number is above the second")
        for gpu in range(int(first), int(last or first) + 1):
            wanted.setdefault(gpu, Counter())[found["profile"]] += int(found["count"] or 1)
    for gpu, profiles in wanted.items():
        if problem := _impossible(profiles):
            raise ValueError(f"GPU {gpu}: {problem}")
    return {gpu: tuple(_largest_first(profiles)) for gpu, profiles in sorted(wanted.items())}


def _compute(profile: str) -> int:
    return int(profile.partition("g.")[0])


def _largest_first(profiles: Counter[str]) -> list[str]:
    # A small instance in the middle would leave no place for a large one.
    return sorted(profiles.elements(), key=lambda name: (-_compute(name), name))


def _impossible(profiles: Counter[str]) -> str:
    """Return why no GPU can hold these instances together; nothing where one can, or where it is not known."""
    told = ", ".join(f"{count} x {name}" for name, count in profiles.items())
    if sum(_compute(name) * count for name, count in profiles.items()) > SLICES:
        return f"{told} are more than the {SLICES} compute slices of a GPU"
    known = {name for table in PROFILES.values() for name in table}
    if not set(profiles) <= known:
        return ""
    fitting = [table for table in PROFILES.values() if set(profiles) <= set(table)]
    if not fitting:
        return f"no GPU has all of {', '.join(profiles)}"
    if all(any(count > table[name] for name, count in profiles.items()) for table in fitting):
        return f"{told}: a GPU holds {', '.join(f'{fitting[0][name]} x {name}' for name in profiles)} at most"
    return ""


def devices(items: Iterable[str]) -> tuple[Device, ...]:
    """Return the instances that ``node_mig_devices`` names.

    Raises:
        ValueError: with a sentence about what is wrong.
    """
    result = []
    for item in items:
        found = _DEVICE.fullmatch(item.strip())
        if not found or not _PROFILE.fullmatch(found["profile"]) or int(found["instance"]) > 14:
            raise ValueError(
                f"{item.strip()!r} must be GPU/GPU instance/compute instance:profile, for example 0/7/0:1g.10gb"
            )
        result.append(Device(int(found["gpu"]), int(found["instance"]), int(found["compute"]), found["profile"]))
    if len(set(result)) < len(result):
        raise ValueError("an instance is named twice")
    return tuple(sorted(result))


def same(wanted: Mapping[int, Sequence[str]], there: Iterable[Device]) -> bool:
    """Tell whether the instances are those of the layout, wherever on their GPUs they lie."""
    found: dict[int, Counter[str]] = {}
    for device in there:
        found.setdefault(device.gpu, Counter())[device.profile] += 1
    return found == {gpu: Counter(profiles) for gpu, profiles in wanted.items()}


def of_type(kind: str, profile: str) -> bool:
    """Tell whether a type in Slurm's words, ``a100_1g.5gb`` or ``1g.5gb``, means a profile."""
    # Slurm has no "+" in a type.
    return kind.lower().endswith(profile.replace("+", "."))


def profile_in(kind: str) -> str:
    """Return the profile that a type in Slurm's words names, ``1g.5gb`` of ``a100_1g.5gb``; or nothing."""
    found = _OF_TYPE.search(kind.lower())
    return found[1] if found else ""


def listed(text: str) -> tuple[Device, ...]:
    """Return the compute instances that ``nvidia-smi mig -lci`` prints; older drivers leave their placement out."""
    rows = re.findall(
        r"^\|\s+(\d{1,2})\s+(\d{1,2})\s+MIG\s+([0-9a-z.+-]{1,40})\s+\d+\s+(\d{1,2})\s+(?:\d+:\d+\s*)?\|",
        text,
        re.MULTILINE,
    )
    return tuple(sorted(Device(int(gpu), int(gi), int(ci), name) for gpu, gi, name, ci in rows))
