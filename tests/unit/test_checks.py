from __future__ import annotations

import pytest

from provision.model.checks import Check, Level, Verdict, check_from
from provision.model.text import brief


def test_a_check_survives_the_way_through_json() -> None:
    before = Check(id="munge.key", host="node1", verdict=Verdict.FAIL, level=Level.CLUSTER, cause="differs")

    assert check_from(before.as_dict()) == before


def test_an_unheard_of_verdict_is_refused() -> None:
    with pytest.raises(ValueError, match="maybe"):
        check_from({"id": "a.b", "verdict": "maybe"}, host="node1")


def test_many_findings_are_told_like_five_and_counted() -> None:
    assert brief(["a"]) == "a"
    assert brief(list("abcde")) == "a; b; c; d; e"
    assert brief(list("abcdefg")) == "a; b; c; d; e; and 2 more"
    assert brief(list("abc"), 2, ", ") == "a, b, and 1 more"
    assert brief([]) == ""
