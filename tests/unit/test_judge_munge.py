"""Munge's proof: one key, credentials both ways between machines, clocks by their own bounds; and who is at fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from provision.judge import munge
from provision.judge.munge import ALL_PAIRS, Seen, Wants, peers
from provision.model.checks import Check

HOSTS = ["head", "node1", "node2"]
KEY = "a" * 64
ODD = "b" * 64


def proof(**changes: Any) -> dict[str, Any]:
    """What a healthy machine answers to the first question."""
    key = {"mode": "0400", "owner": "munge:munge", "fingerprint": KEY} | changes.pop("key", {})
    return {"key": key, "credential": "MUNGE:x:", "error": "", **changes}


def decoded(*hosts: str, **refused: str) -> dict[str, Any]:
    """What it answers to the second: it accepts these, and says this to others."""
    return {
        "decoded": {host: {"status": "Success (0)"} for host in hosts} | {h: {"status": s} for h, s in refused.items()}
    }


def clock(low: float = -0.1, high: float = 0.4) -> dict[str, Any]:
    """What is measured of its clock."""
    return {"clock_offset": {"low": low, "high": high}}


def others(me: str, hosts: list[str] | None = None) -> list[str]:
    return [host for host in hosts or HOSTS if host != me]


def healthy(hosts: list[str] | None = None) -> dict[str, Seen]:
    """Return machines that all accept each other."""
    hosts = hosts or HOSTS
    return {
        me: Seen.from_results(proof(), decoded(*peers(hosts, me, "head")), clock()) for me in hosts
    }  # fmt: skip


def wanted(**changes: Any) -> Wants:
    settings: dict[str, Any] = {"controller": "head", "fingerprint": KEY, "mode": "0400", "warn": 5, "fail": 30}
    return Wants(**(settings | changes))


def judged(seen: Mapping[str, Seen], **changes: Any) -> dict[tuple[str, str], Check]:
    """Return all checks by machine and name."""
    return {(check.host, check.id.partition(".")[2]): check for check in munge.checks(seen, wanted(**changes))}


def bad(seen: Mapping[str, Seen], name: str, **changes: Any) -> dict[str, str]:
    """Return the machines for which a check is no pass."""
    found = judged(seen, **changes)
    return {host: str(check.verdict) for (host, one), check in found.items() if one == name and check.verdict != "pass"}


def test_machines_that_share_a_key_and_a_clock_pass() -> None:
    assert {str(check.verdict) for check in judged(healthy()).values()} == {"pass"}


def test_a_key_that_others_can_read_fails_with_both_modes() -> None:
    seen = healthy() | {"node1": Seen.from_results(proof(key={"mode": "0440"}), decoded("head", "node2"), clock())}

    check = judged(seen)["node1", "key_mode"]

    assert (check.verdict, check.observed, check.expected) == ("fail", "0440 munge:munge", "0400 munge:munge")


@pytest.mark.parametrize("odd", HOSTS)
def test_the_machine_with_another_key_than_most_is_at_fault_the_controller_too(odd: str) -> None:
    seen = healthy()
    refusal = "Invalid credential (7)"
    for host in HOSTS:
        print_of = ODD if host == odd else KEY
        answers = (
            decoded(**dict.fromkeys(others(host), refusal))
            if host == odd
            else decoded(*(other for other in others(host) if other != odd), **{odd: refusal})
        )
        seen[host] = Seen.from_results(proof(key={"fingerprint": print_of}), answers, clock())

    assert bad(seen, "same_key", fingerprint=ODD if odd == "head" else KEY) == {odd: "fail"}
    assert bad(seen, "round_trip") == {odd: "fail"}


def test_another_key_is_not_shown() -> None:
    seen = healthy() | {"node1": Seen.from_results(proof(key={"fingerprint": ODD}), decoded("head", "node2"), clock())}

    assert judged(seen)["node1", "same_key"].observed == "hash bbbbbbbbbbbb: another key than 2 of 3 machines"


def test_of_two_machines_with_different_keys_both_are_named_and_neither_is_guilty() -> None:
    seen = {"node1": Seen.from_results(proof(key={"fingerprint": ODD}), decoded("node1"), clock())}

    check = judged(seen)["node1", "same_key"]

    assert check.verdict == "fail"
    assert check.cause == "node1 or head has a wrong key; with no majority nobody can say which"


def test_without_the_controller_the_nodes_compare_among_themselves() -> None:
    seen = healthy(["node1", "node2", "node3"])

    assert bad(seen, "same_key", fingerprint="") == {}


def test_a_node_alone_whose_controller_does_not_answer_is_unknown() -> None:
    seen = {"node1": Seen.from_results(proof(), decoded("node1"), clock())}

    assert bad(seen, "same_key", fingerprint="") == {"node1": "unknown"}


def test_of_a_pair_that_does_not_work_both_are_named() -> None:
    seen = healthy()
    seen["node1"] = Seen.from_results(proof(), decoded("head", node2="Invalid credential (7)"), clock())

    found = judged(seen)

    assert bad(seen, "round_trip") == {"node1": "fail", "node2": "fail"}
    assert found["node1", "round_trip"].observed == "node2: Invalid credential (7)"
    assert "on node1 or on node2, nobody can say which" in found["node1", "round_trip"].cause


def test_a_machine_that_made_no_credential_accuses_itself_alone() -> None:
    problem = "munge: Failed to connect"
    seen = healthy()
    seen["node2"] = Seen.from_results(
        proof(credential="", error=problem), decoded(head=problem, node1=problem), clock()
    )
    for host in ("head", "node1"):
        seen[host] = Seen.from_results(proof(), decoded(*(one for one in others(host) if one != "node2")), clock())

    assert bad(seen, "round_trip") == {"node2": "fail"}
    assert problem in judged(seen)["node2", "round_trip"].observed


def test_the_bad_one_of_many_is_found_although_each_asks_only_its_neighbours() -> None:
    hosts = ["head", *(f"node{number}" for number in range(1, 60))]
    seen = healthy(hosts)
    for host in hosts:
        asked = peers(hosts, host, "head")
        refused = asked if host == "node30" else [one for one in asked if one == "node30"]
        answers = decoded(
            *(one for one in asked if one not in refused), **dict.fromkeys(refused, "Rewound credential (16)")
        )
        seen[host] = Seen.from_results(proof(), answers, clock())

    assert bad(seen, "round_trip") == {"node30": "fail"}


@pytest.mark.parametrize(
    "printed",
    [
        "MUNGE:" + "A" * 5_000_000 + ":",
        "MUNGE:x:\nMUNGE:y:",
        "MUNGE::",
        "x",
        "{{ 1 }}",
        "MUNGE:\x1b[2J:",
        ["MUNGE:x:"],
        7,
    ],
)
def test_what_is_no_credential_is_given_to_no_other_machine_and_fails_on_its_own(printed: Any) -> None:
    answers = {"head": proof(), "node1": proof(credential=printed), "node2": proof()}
    seen = healthy()
    seen["node1"] = Seen.from_results(answers["node1"], decoded("head", "node2"), clock())
    for host in ("head", "node2"):
        seen[host] = Seen.from_results(proof(), decoded(*(one for one in others(host) if one != "node1")), clock())

    assert munge.credentials(answers) == {"head": "MUNGE:x:", "node2": "MUNGE:x:"}
    assert bad(seen, "round_trip") == {"node1": "fail"}
    assert "is no credential" in judged(seen)["node1", "round_trip"].observed


def test_a_machine_alone_decodes_its_own_credential_and_skips_the_clock() -> None:
    seen = {"head": Seen.from_results(proof(), decoded("head"), clock())}

    assert {name: str(judged(seen)["head", name].verdict) for name in munge.SUBJECT.names} == {
        "key_mode": "pass", "same_key": "skip", "round_trip": "pass", "clock": "skip",
    }  # fmt: skip


@pytest.mark.parametrize("late", [0.05, 0.17, 1.0])
def test_four_hundred_machines_with_equal_clocks_raise_no_alarm_however_late_their_fork_is(late: float) -> None:
    hosts = ["head", *(f"node{number}" for number in range(1, 400))]
    seen = {
        # The later a machine's turn, the busier the control node; its own bounds hold the time that it took.
        host: Seen.from_results(proof(), decoded(*peers(hosts, host, "head")), clock(-late * (place % 20) - 0.2, 0.3))
        for place, host in enumerate(hosts)
    }

    assert bad(seen, "clock") == {}


def test_a_slow_login_alarms_nobody_and_proves_nothing() -> None:
    seen = healthy() | {"node1": Seen.from_results(proof(), decoded("head", "node2"), clock(-45.0, 0.3))}

    found = judged(seen)

    assert (found["node1", "clock"].verdict, found["node1", "clock"].unproven) == ("skip", True)
    assert bad(seen, "clock") == {"node1": "skip"}


@pytest.mark.parametrize("odd", HOSTS)
@pytest.mark.parametrize(("ahead", "verdict"), [(4, ""), (10, "warn"), (40, "fail"), (-40, "fail")])
def test_a_clock_that_is_off_is_found_and_the_right_machine_named(odd: str, ahead: int, verdict: str) -> None:
    seen = healthy() | {odd: Seen.from_results(proof(), decoded(*others(odd)), clock(ahead - 0.1, ahead + 0.4))}

    assert bad(seen, "clock") == ({odd: verdict} if verdict else {})


def test_machines_that_agree_with_each_other_pass_whatever_the_control_nodes_clock_says() -> None:
    seen = {host: Seen.from_results(proof(), decoded(*others(host)), clock(3599.9, 3600.4)) for host in HOSTS}

    assert bad(seen, "clock") == {}


def test_of_two_machines_whose_clocks_differ_both_are_named() -> None:
    seen = {
        "head": Seen.from_results(proof(), decoded("node1"), clock()),
        "node1": Seen.from_results(proof(), decoded("head"), clock(99.9, 100.4)),
    }

    assert bad(seen, "clock") == {"head": "fail", "node1": "fail"}
    assert "on node1 or on head; with no majority" in judged(seen)["node1", "clock"].cause


@pytest.mark.parametrize(
    "bounds",
    [
        {"low": float("nan"), "high": 1}, {"low": 1, "high": 0}, {"low": -(10**400), "high": 10**400},
        {"low": "0", "high": "1"}, {"low": float("-inf"), "high": float("inf")}, [], None, {"low": [], "high": {}},
    ],
)  # fmt: skip
def test_bounds_that_are_none_are_unknown_for_that_machine_alone(bounds: Any) -> None:
    seen = healthy() | {"node1": Seen.from_results(proof(), decoded("head", "node2"), {"clock_offset": bounds})}

    assert bad(seen, "clock") == {"node1": "unknown"}


def test_what_a_machine_answers_is_shown_without_control_characters_and_bounded() -> None:
    text = "\x1b[31m{observed} {{ 7 * 7 }}\n" + "x" * 100_000
    seen = healthy()
    seen["node1"] = Seen.from_results(proof(), decoded(head=text, node2=text), clock())

    check = judged(seen)["node1", "round_trip"]

    assert check.verdict == "fail"
    assert check.observed.startswith("head: {observed} {{ 7 * 7 }} x")
    assert len(check.observed) < 2000


@pytest.mark.parametrize("count", [1, 2, 3, ALL_PAIRS, ALL_PAIRS + 1, 300])
def test_credentials_go_both_ways_between_any_two_that_are_asked_at_all(count: int) -> None:
    hosts = ["head", *(f"node{number}" for number in range(1, count))]

    chosen = {host: set(peers(hosts, host, "head")) for host in hosts}

    if count > 1:
        assert all(host in chosen[other] for host in hosts for other in chosen[host])
        assert all(host == "head" or "head" in chosen[host] for host in hosts)
    assert sum(len(found) for found in chosen.values()) <= max(ALL_PAIRS**2, 4 * count)
