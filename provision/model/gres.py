"""Generic resources in Slurm's words: the only place where ``gpu:A40:4`` is read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

# A type may begin with a digit, as MIG's 1g.10gb does, but is no number: gpu:4 is a count.
_GRES = re.compile(r"(?P<name>[a-z][a-z0-9_]*)(:(?P<type>(?=[0-9]*[A-Za-z_])[A-Za-z0-9_.-]+))?:(?P<count>[0-9]{1,7})")
#: What Slurm adds when it prints resources: the sockets behind them, their numbers, or that there are none.
_ADDED = re.compile(r"\((S:[0-9,-]+|IDX:(?:[0-9,-]*|N/A)|null)\)")
#: Resources that are there and of which none is in use.
_UNUSED = re.compile(r"[^,]*:0(?=,|\Z),?")

#: A product's number as NVIDIA writes it (A40, H100, L40S, GB200, 4090), also where more is written on (H100NVL).
_MODEL = re.compile(
    r"(?<![a-z0-9])(?:rtx|gtx|tesla|nvidia)*((?:gb|gh|gv|[ablhptv])\d{1,4}(?:[gs](?![a-z]))?|\d{4})(?![0-9])"
)

#: Devices of one kind on one node that anybody can mean. Slurm counts further; a machine that claims more is lying, and
#: each device is a line of gres.conf.
MAX_COUNT = 1024


class Gres(BaseModel):
    """Generic resources of one kind on one node, such as four A40 GPUs. ``type`` is None where it is not told."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str
    type: str | None
    count: int

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.name, self.type, self.count) if part is not None)

    @property
    def kind(self) -> str:
        """``gpu:a40`` or ``gpu``, in lower case, as Slurm compares types."""
        return f"{self.name}:{self.type}".lower() if self.type else self.name.lower()


def gres_from(value: object) -> Gres:
    """Read ``gpu:A40:4`` or ``gpu:4``, as Slurm's Gres= writes them.

    Raises:
        ValueError: the count is missing, zero, negative, no whole number or above :data:`MAX_COUNT`.
    """
    if isinstance(value, Gres):
        return value
    found = _GRES.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found or int(found["count"]) < 1:
        raise ValueError(
            f"'{value}' must be name:type:count or name:count with a count of 1 or more, for example gpu:A40:4"
        )
    if int(found["count"]) > MAX_COUNT:
        raise ValueError(f"'{value}' names more than {MAX_COUNT} devices of one kind on one node")
    return Gres(name=found["name"], type=found["type"], count=int(found["count"]))


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


def same_type(declared: str, found: str) -> bool | None:
    """Tell whether two types of GPU name the same product; None where nobody can, as of a name that a site made up.

    ``a100`` and ``NVIDIA A100-SXM4-80GB`` do, ``a40`` and ``h100`` do not. Slurm
    takes any part of the driver's name for a type; people write it with other signs between, and in other cases.
    """
    declared, found = declared.lower(), found.lower()
    if declared and not found:
        return None
    if _within(declared, found) or _within(found, declared):
        return True
    models = [set(_MODEL.findall(re.sub(r"[^a-z0-9]+", " ", text))) for text in (declared, found)]
    if all(models):
        return bool(models[0] & models[1])
    return None


def _within(part: str, whole: str) -> bool:
    """Tell whether one name is a part of the other: as Slurm sees it, or word by word. A10 is no part of A100."""
    words = [re.findall(r"[a-z0-9]+", text) for text in (part, whole)]
    if set(words[0]) <= set(words[1]):
        return True
    return re.search(rf"{re.escape(''.join(words[0]))}(?![0-9])", "".join(words[1])) is not None
