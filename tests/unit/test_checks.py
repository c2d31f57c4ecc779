from __future__ import annotations

import pytest

from provision.model.checks import Check, Level, Verdict, check_from


def test_a_check_survives_the_way_through_json() -> None:
    before = Check(id="munge.key", host="node1", verdict=Verdict.FAIL, level=Level.CLUSTER, cause="differs")

    assert check_from(before.as_dict()) == before


def test_an_unheard_of_verdict_is_refused() -> None:
    with pytest.raises(ValueError, match="maybe"):
        check_from({"id": "a.b", "verdict": "maybe"}, host="node1")
