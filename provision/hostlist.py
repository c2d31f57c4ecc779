"""Many node names as one short expression, in the form that Slurm reads: ``node[01-16]``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError
from ClusterShell.RangeSet import RangeSet

from provision.errors import ClusterctlError

# More names than Slurm can have nodes (65536, slurm.conf(5)) are a slip of the finger, and would fill the memory.
_LIMIT = 65536
_PLAIN = re.compile(r"[A-Za-z0-9_.,/\[\]-]+")
_BRACKET = re.compile(r"\[([^\]]*)\]")
_ANY_RANGE = re.compile(r"[\[,](\d+)[:-](\d+)(?::(\d+))?(?=[\],])")
_RANGE = re.compile(r"(\d+)-(\d+)")
# Longer numbers than this are serial numbers or addresses, not counters; they are written out.
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.DOTALL)


def fold(names: Iterable[str]) -> str:
    """Return a short hostlist of exactly these names, in a form that every Slurm reads.

    Slurm before 23.11 takes a range only at the very end of a name, and ClusterShell by itself would write
    ``rack[1-2]-gpu1`` or ``gpu[1-2]a``. So only the last number is folded, and only where the name ends in it.
    """
    ranges: dict[str, list[str]] = {}
    others: list[str] = []
    for name in set(names):
        if numbered := _NUMBERED.fullmatch(name):
            ranges.setdefault(numbered[1], []).append(numbered[2])
        else:
            others.append(name)
    folded = []
    for prefix, numbers in sorted(ranges.items()):
        if len(numbers) == 1:
            folded.append(prefix + numbers[0])
        else:
            folded.append(f"{prefix}[{RangeSet.fromlist(numbers)}]")
    return ",".join(folded + sorted(others))


def expand(text: str) -> list[str]:
    """Return the names in a hostlist, sorted, each once. The inverse of :func:`fold`.

    Raises:
        ClusterctlError: the text is no hostlist, or has more than 65536 names.
    """
    try:
        if not _PLAIN.fullmatch(text):
            raise ValueError("only names, commas and [ranges] are understood")
        for low, high in _RANGE.findall(" ".join(_BRACKET.findall(text))):
            if int(high) < int(low):
                raise ValueError(f"{low}-{high} runs backwards")
        if _size(text) > _LIMIT:
            raise ValueError(f"that is more than {_LIMIT} names")
        return [str(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP)]
    except (NodeSetParseError, ValueError) as error:
        shown = text if len(text) <= 80 else text[:77] + "..."
        raise ClusterctlError(
            f"'{shown}' is not a list of nodes: {error}", fix="write it as Slurm does: node[01-16],login1"
        ) from None


def require_possible(text: str, where: str) -> None:
    """Refuse ranges of Slurm (``n[1-9]``) or Ansible (``n[1:9]``) with more names than anybody can mean, unexpanded.

    Raises:
        ClusterctlError: there is one; ``where`` says where it was written.
    """
    for word in text.split():
        names = 1
        for first, last, step in _ANY_RANGE.findall(word):
            # Numbers of that many digits are not even compared.
            wide = 10**9 if len(last) > 9 else max(0, int(last) - int(first[-9:])) // max(1, int(step[-9:] or 1))
            names *= wide + 1
        if names > _LIMIT:
            raise ClusterctlError(
                f"{where}: '{word[:60]}' would be more than {_LIMIT} names",
                fix="correct the range, for example n[1:16]",
            )


def _size(text: str) -> int:
    """Return an upper bound of the number of names, without making them."""
    total = 0
    for word in re.split(r",(?![^\[]*\])", text):
        names = 1
        for bracket in _BRACKET.findall(word):
            wide = sum(int(high) - int(low) for low, high in _RANGE.findall(bracket))
            names *= wide + bracket.count(",") + 1
        total += names
    return total
