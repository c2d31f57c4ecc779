"""Munge's proof: keys compared by hash, credentials both ways between machines, clocks from their times."""

from __future__ import annotations

from typing import Any

import pytest

from provision.judge.munge import ALL_PAIRS, Seen, checks, peers

HOSTS = ["head", "node1", "node2"]


def proof(**changes: Any) -> dict[str, Any]:
    """What a healthy machine answers to the first question."""
    key = {"mode": "0400", "owner": "munge:munge", "fingerprint": "aa11"} | changes.pop("key", {})
    return {"key": key, "credential": "MUNGE:x", "error": "", **changes}


def decoded(*hosts: str, encode: int = 100, decode: int = 102, status: str = "Success (0)") -> dict[str, Any]:
    """What it answers to the second."""
    return {"decoded": {host: {"status": status, "encode": encode, "decode": decode} for host in hosts}}


def healthy() -> dict[str, Seen]:
    """Return three machines that all accept each other."""
    return {me: Seen.from_results(proof(), decoded(*(host for host in HOSTS if host != me))) for me in HOSTS}


def judged(seen: dict[str, Seen], me: str = "node1") -> dict[str, dict[str, Any]]:
    """Return a machine's checks by id."""
    found = checks(seen, me, "head", "aa11", mode="0400", warn=5, fail=30)
    return {check["id"].partition(".")[2]: check for check in found}


def test_machines_that_share_a_key_and_a_clock_pass() -> None:
    found = judged(healthy())

    assert {name: check["verdict"] for name, check in found.items()} == dict.fromkeys(
        ("key_mode", "same_key", "round_trip", "clock"), "pass"
    )


def test_a_key_that_others_can_read_fails_with_both_modes() -> None:
    seen = healthy() | {"node1": Seen.from_results(proof(key={"mode": "0440"}), decoded("head", "node2"))}

    check = judged(seen)["key_mode"]

    assert (check["verdict"], check["observed"], check["expected"]) == ("fail", "0440 munge:munge", "0400 munge:munge")


def test_another_key_fails_and_the_key_is_not_shown() -> None:
    seen = healthy() | {"node1": Seen.from_results(proof(key={"fingerprint": "b" * 64}), decoded("head", "node2"))}

    check = judged(seen)["same_key"]

    assert check["verdict"] == "fail"
    assert check["observed"] == "hash bbbbbbbbbbbb"


def test_a_controller_without_a_key_makes_the_comparison_unknown() -> None:
    found = checks(healthy(), "node1", "head", "", mode="0400", warn=5, fail=30)

    assert [check["verdict"] for check in found if check["id"] == "munge.same_key"] == ["unknown"]


def test_a_refused_credential_names_the_machine_that_made_it() -> None:
    refused = decoded("head") | {}
    refused["decoded"]["node2"] = {"status": "Invalid credential (7)", "encode": None, "decode": None}
    seen = healthy() | {"node1": Seen.from_results(proof(), refused)}

    check = judged(seen)["round_trip"]

    assert check["verdict"] == "fail"
    assert check["observed"] == "node2: Invalid credential (7)"


def test_a_machine_that_made_no_credential_is_unknown_with_its_own_words() -> None:
    seen = healthy()
    seen["node2"] = Seen.from_results(proof(credential="", error="munge: Failed to connect"), decoded("head", "node1"))
    seen["node1"] = Seen.from_results(proof(), decoded("head"))

    check = judged(seen)["round_trip"]

    assert check["verdict"] == "unknown"
    assert "node2: made no credential (munge: Failed to connect)" in check["observed"]


def test_a_machine_that_answered_nothing_is_unknown_and_not_an_error() -> None:
    seen = healthy() | {"node1": Seen.from_results(None, None)}

    found = judged(seen)

    assert {check["verdict"] for check in found.values()} == {"unknown"}


@pytest.mark.parametrize(("ahead", "verdict"), [(0, "pass"), (4, "pass"), (10, "warn"), (40, "fail"), (-40, "fail")])
def test_the_offset_of_a_clock_is_measured_whatever_time_passed_in_between(ahead: int, verdict: str) -> None:
    # Three seconds pass between making and decoding; node1's clock is ahead of head's.
    seen = {
        "head": Seen.from_results(proof(), decoded("node1", encode=100 + ahead, decode=103)),
        "node1": Seen.from_results(proof(), decoded("head", encode=100, decode=103 + ahead)),
    }

    check = judged(seen)["clock"]

    assert (check["verdict"], check["observed"]) == (verdict, f"{ahead:+.1f} s against head")


def test_a_machine_alone_decodes_its_own_credential_and_skips_the_clock() -> None:
    seen = {"node1": Seen.from_results(proof(), decoded("node1"))}

    found = judged(seen)

    assert (found["round_trip"]["verdict"], found["clock"]["verdict"]) == ("pass", "skip")


@pytest.mark.parametrize("count", [1, 2, 3, ALL_PAIRS, ALL_PAIRS + 1, 300])
def test_credentials_go_both_ways_between_any_two_that_are_asked_at_all(count: int) -> None:
    hosts = ["head", *(f"node{number}" for number in range(1, count))]

    chosen = {host: set(peers(hosts, host, "head")) for host in hosts}

    if count > 1:
        assert all(host in chosen[other] for host in hosts for other in chosen[host])
        assert all(host == "head" or "head" in chosen[host] for host in hosts)
    assert sum(len(others) for others in chosen.values()) <= max(ALL_PAIRS**2, 4 * count)
