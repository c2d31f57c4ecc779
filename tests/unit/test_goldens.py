"""What users meet of the product is written down in tests/goldens: what differs was meant, or is undone."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import unified_diff
from itertools import islice
from pathlib import Path

import pytest
from goldens import write

GOLDENS: dict[str, Callable[[], dict[str, str]]] = {
    "refusals.yml": lambda: {"refusals.yml": write.refusals()},
    "checks.txt": lambda: {"checks.txt": write.checks()},
    "json.txt": lambda: {"json.txt": write.documents()},
    "files": write.files,
    "help": write.helps,
}


def stored(name: str) -> dict[str, str]:
    paths = [write.HERE / name, *(write.HERE / name).rglob("*")]
    return {str(path.relative_to(write.HERE)): path.read_text(encoding="utf-8") for path in paths if path.is_file()}


@pytest.mark.parametrize("name", GOLDENS)
def test_the_product_does_what_was_written_down(name: str) -> None:
    was, now = stored(name), GOLDENS[name]()

    differing = (
        line
        for path in sorted(was.keys() | now.keys())
        for line in unified_diff(was.get(path, "").split("\n"), now.get(path, "").split("\n"), path, "now", n=1)
    )
    if shown := list(islice(differing, 100)):
        pytest.fail("\n".join([*map(str.rstrip, shown), str(write.__doc__)]), pytrace=False)


def test_what_holds_a_finding_is_moved_and_not_lost() -> None:
    kept = re.findall(r"^  (test_\w+)$", (write.HERE / "kept_tests.txt").read_text(encoding="utf-8"), re.MULTILINE)
    files = Path(__file__).parents[1].rglob("test_*.py")
    there = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}

    assert kept
    assert sorted(set(kept) - there) == []
