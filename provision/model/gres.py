"""Generic resources in Slurm's words: the only place where ``gpu:A40:4`` is read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

# A type may begin with a digit, as MIG's 1g.10gb does, but is no number: gpu:4 is a count.
_GRES = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_-]*)(:(?!no_consume:)(?P<type>(?=[0-9]*[A-Za-z_])[A-Za-z0-9_.-]+))?"
    r"(?P<endless>:no_consume)?:(?P<count>[0-9]{1,19})(?P<unit>[KMGTPkmgtp]?)"
)
#: slurm.conf(5), Gres: what a count may end with, each 1024 times the one before.
_UNITS = " KMGTP"
#: What Slurm adds when it prints resources: the sockets behind them, their numbers, or that there are none.
_ADDED = re.compile(r"\((S:[0-9,-]+|IDX:(?:[0-9,-]*|N/A)|null)\)")
#: Resources that are there and of which none is in use.
_UNUSED = re.compile(r"[^,]*:0(?=,|\Z),?")

#: A product's number as NVIDIA writes it (A40, H100, L40S, GB200, 4090), also where more is written on (H100NVL).
_MODEL = re.compile(
    r"(?<![a-z0-9])(?:rtx|gtx|tesla|nvidia)*((?:gb|gh|gv|[ablhptv])\d{1,4}(?:[gs](?![a-z]))?|\d{4})(?![0-9])"
)

#: GPUs of one kind on one node: with device files Slurm counts no further (MAX_GRES_BITMAP in src/interfaces/gres.c).
MAX_GPUS = 1024
#: What has no device is a number of 64 bits.
_MOST = 2**63 - 1


class Gres(BaseModel):
    """Generic resources of one kind on one node, such as four A40 GPUs. ``type`` is None where it is not told.

    ``endless`` is Slurm's no_consume: jobs ask for it, and use none up.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str
    type: str | None
    count: int
    endless: bool = False

    def __str__(self) -> str:
        count, unit = self.count, 0
        while count % 1024 == 0 and unit < len(_UNITS) - 1:
            count, unit = count // 1024, unit + 1
        parts = (self.name, self.type, "no_consume" if self.endless else None, f"{count}{_UNITS[unit].strip()}")
        return ":".join(part for part in parts if part is not None)

    @property
    def kind(self) -> str:
        """``gpu:a40`` or ``gpu``, in lower case, as Slurm compares types."""
        return f"{self.name}:{self.type}".lower() if self.type else self.name.lower()


def gres_from(value: object) -> Gres:
    """Read ``gpu:A40:4``, ``nvme:3600G`` or ``bandwidth:lustre:no_consume:4G``, as Slurm's Gres= writes them.

    Raises:
        ValueError: the count is missing, zero, negative, no whole number or more than Slurm counts.
    """
    if isinstance(value, Gres):
        return value
    found = _GRES.fullmatch(value.strip()) if isinstance(value, str) else None
    count = int(found["count"]) * 1024 ** _UNITS.index(found["unit"].upper() or " ") if found else 0
    if not found or count < 1:
        raise ValueError(
            f"'{value}' must be name:type:count or name:count with a count of 1 or more, for example gpu:A40:4"
        )
    if found["name"] == "gpu" and count > MAX_GPUS:
        raise ValueError(f"'{value}' names more than {MAX_GPUS} devices of one kind on one node")
    if count > _MOST:
        raise ValueError(f"'{value}' is more than Slurm counts")
    return Gres(name=found["name"], type=found["type"], count=count, endless=bool(found["endless"]))


def parse(value: object) -> tuple[Gres, ...]:
    """Read a ``node_gres``: its items separated by commas, or a list of them; nothing means no resources.

    Raises:
        ValueError: it is neither, or an item is none that Slurm reads.
    """
    if isinstance(value, str):
        return tuple(gres_from(item) for item in value.split(",") if item.strip())
    if isinstance(value, Sequence):
        return tuple(gres_from(item) for item in value)
    raise ValueError("it must be a list, or its items separated by commas")


def printed(text: str) -> tuple[Gres, ...]:
    """Read resources as Slurm prints them: ``gpu:A40:4(S:0-1)``, ``gpu:A40:0(IDX:N/A)``, ``(null)``.

    Raises:
        ValueError: an item is none that Slurm prints.
    """
    return parse(_UNUSED.sub("", _ADDED.sub("", text)))


def counts(resources: Iterable[Gres]) -> dict[str, int]:
    """Return how many there are of each kind: ``{"gpu:a40": 4}``."""
    found: dict[str, int] = {}
    for one in resources:
        found[one.kind] = found.get(one.kind, 0) + one.count
    return found


def gpus(value: object) -> int:
    """Return how many GPUs (MIG instances count one by one) a ``node_gres`` names; None names none.

    Raises:
        ValueError: as :func:`parse`.
    """
    return sum(one.count for one in parse(value or ()) if one.name == "gpu")


def other_product(kind: str, name: str) -> bool:
    """Tell whether a type and a driver's name are of two products, as ``a40`` and ``NVIDIA H100 NVL``.

    False where nobody can tell, as of a type that a site has made up.
    """
    models = [set(_MODEL.findall(re.sub(r"[^a-z0-9]+", " ", text.lower()))) for text in (kind, name)]
    return all(models) and not models[0] & models[1]


def slurms_name(product: str) -> str:
    """Return a driver's name of a GPU as Slurm has it: gpu_common_underscorify_tolower() in src/plugins/gpu/common."""
    return product.lower().replace(" ", "_")


def untaken(wanted: Mapping[str, int], products: Iterable[str]) -> dict[str, int]:
    """Return of which types Slurm's detection finds too few GPUs, and how many are missing.

    A type is a part of Slurm's name for a GPU, to the letter; the longest type takes the GPUs that it fits first
    (_normalize_sys_gres_types() in src/plugins/gres/gpu/gres_gpu.c).
    """
    left = dict(sorted(wanted.items(), key=lambda item: -len(item[0])))
    for name in sorted(map(slurms_name, products), key=len, reverse=True):
        kind = next((kind for kind in left if left[kind] and kind.lower() in name), None)
        if kind is not None:
            left[kind] -= 1
    return {kind: count for kind, count in left.items() if count}


def spelt_for(kind: str, product: str) -> str:
    """Return a type that Slurm would take for a GPU: ``rtx_4090`` for ``rtx4090``, else all of the name that can be."""
    name = slurms_name(product)
    found = re.search("[_.-]*".join(re.findall("[a-z0-9]", kind.lower())), name)
    return found[0] if found else re.split("[^a-z0-9_.-]", name.removeprefix("nvidia_"))[0].rstrip("_.-")
