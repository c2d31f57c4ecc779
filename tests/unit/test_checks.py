from __future__ import annotations

import pytest

from provision.model.checks import Check, Level, Verdict, check_from, overall


def check(verdict: Verdict) -> Check:
    return Check(id="a.b", host="node1", verdict=verdict)


def test_a_fail_outweighs_an_unknown_and_an_unknown_outweighs_a_pass() -> None:
    assert overall([check(Verdict.PASS), check(Verdict.UNKNOWN), check(Verdict.FAIL)]) is Verdict.FAIL
    assert overall([check(Verdict.PASS), check(Verdict.UNKNOWN)]) is Verdict.UNKNOWN
    assert overall([check(Verdict.PASS), check(Verdict.WARN), check(Verdict.SKIP)]) is Verdict.PASS


def test_nothing_checked_is_not_a_pass() -> None:
    assert overall([]) is Verdict.UNKNOWN
    assert overall([check(Verdict.SKIP)]) is Verdict.UNKNOWN


def test_a_check_survives_the_way_through_json() -> None:
    before = Check(id="munge.key", host="node1", verdict=Verdict.FAIL, level=Level.CLUSTER, cause="differs")

    assert check_from(before.as_dict()) == before


def test_an_unheard_of_verdict_is_refused() -> None:
    with pytest.raises(ValueError, match="maybe"):
        check_from({"id": "a.b", "verdict": "maybe"}, host="node1")
