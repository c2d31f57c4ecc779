"""No test of simulated machines is left out by all of the Makefile's targets."""

from __future__ import annotations

import re
import tomllib
from itertools import chain, combinations

from _pytest.mark.expression import Expression

from provision import content

#: Marks by which such tests are chosen; the others say what they need or prove.
CHOOSING = ("faults", "jobs", "driver")


def _takes(target: Expression, marks: tuple[str, ...]) -> bool:
    return target.evaluate(lambda name, **_: name in marks)


def test_every_test_of_a_lab_is_run_by_some_target() -> None:
    text = (content.ROOT / "Makefile").read_text(encoding="utf-8")
    routine = re.search(r"^ROUTINE := (.+)$", text, re.MULTILINE)[1]
    # What runs the whole directory; files that are left out there are run by another target with the same marks.
    text = text.replace("\\\n", "")
    runs = re.findall(
        r"pytest [^\n]*-m \"?([^\"\n]+?)\"? (?:[^\n\"]*[ ,])?tests/lab(?= |$|/test_\*)", text, re.MULTILINE
    )
    targets = [Expression.compile(words.replace("$(ROUTINE)", routine)) for words in runs]
    config = tomllib.loads((content.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = {mark.partition(":")[0] for mark in config["tool"]["pytest"]["ini_options"]["markers"]}

    left_out = [
        marks
        for marks in chain.from_iterable(combinations(CHOOSING, count) for count in range(len(CHOOSING) + 1))
        if not any(_takes(target, marks) for target in targets)
    ]

    assert set(CHOOSING) <= declared
    assert len(targets) == 4
    assert left_out == []
