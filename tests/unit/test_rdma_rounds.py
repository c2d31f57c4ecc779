"""Who moves data to whom: every pair once, each machine in one pair at a time, and in few rounds."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from machines import act, plugin

from provision.rdma.rounds import Rail, bound, matched, plan, rails_of, rounds, schedule

ONE = {"name": "mlx5_0", "software": False, "ports": [{"number": 1, "state": "Active", "rate": 400.0}]}


def names(count: int) -> list[str]:
    return [f"node{number}" for number in range(1, count + 1)]


def pairs(count: int, **settings: Any) -> list[frozenset[str]]:
    given = {"all_pairs": 16, "sampled": 3, "seed": 0, **settings}
    return [frozenset(pair) for one in rounds(names(count), **given) for pair in one]


@pytest.mark.parametrize("count", [2, 3, 4, 7, 16])
def test_every_pair_meets_exactly_once_in_as_few_rounds_as_there_can_be(count: int) -> None:
    assert sorted(map(sorted, pairs(count))) == sorted(map(sorted, combinations(names(count), 2)))
    assert len(rounds(names(count), all_pairs=16, sampled=3, seed=0)) == (count - 1 if count % 2 == 0 else count)


@pytest.mark.parametrize("count", [2, 5, 16, 17, 200, 501])
def test_a_machine_is_in_one_pair_at_a_time(count: int) -> None:
    for one in rounds(names(count), all_pairs=16, sampled=3, seed=7):
        busy = [name for pair in one for name in pair]
        assert len(busy) == len(set(busy))


@pytest.mark.parametrize("count", [17, 200, 501])
def test_many_machines_meet_their_neighbours_and_some_others(count: int) -> None:
    met = pairs(count)
    ring = {frozenset((name, names(count)[(place + 1) % count])) for place, name in enumerate(names(count))}

    assert ring <= set(met)
    assert len(met) == len(set(met))
    assert len(rounds(names(count), all_pairs=16, sampled=3, seed=0)) <= 6
    assert len(met) > count


def test_another_seed_chooses_others() -> None:
    assert set(pairs(100, seed=1)) != set(pairs(100, seed=2))
    assert pairs(100, seed=1) == pairs(100, seed=1)


def test_a_machine_is_waited_for_until_it_must_be_through_with_the_rounds_before() -> None:
    rails = {name: [Rail("mlx5_0", 1, 400.0, software=False)] for name in names(4)}
    steps = schedule(rails, dict.fromkeys(rails, "10.0.0.1"))

    limit = bound(steps, 100, 30)

    # All measure in the first round: four tests of 40 s and 30 to agree; two tests in each of the others.
    times = [[(step["by"], step["within"]) for step in mine] for mine in steps.values()]
    assert times == [[(100, 190), (290, 110), (400, 110)]] * 4
    assert limit == 100 + 60 + 190 + 110 + 110


def test_one_machine_has_nobody() -> None:
    assert rounds(["node1"], all_pairs=16, sampled=3, seed=0) == []


def test_rails_are_the_active_ports_in_the_order_in_which_people_count() -> None:
    port = {"number": 1, "state": "Active", "rate": 400.0}
    found = {
        "devices": [
            {"name": "mlx5_10", "software": False, "ports": [port]},
            {"name": "mlx5_2", "software": False, "ports": [port]},
            {"name": "mlx5_3", "software": False, "ports": [{**port, "state": "Down"}]},
        ]
    }

    assert rails_of(found) == [Rail("mlx5_2", 1, 400.0), Rail("mlx5_10", 1, 400.0)]
    assert rails_of({"devices": []}) == []
    assert rails_of(found, ["mlx5_10"]) == rails_of(found, ["mlx5_10:1"]) == [Rail("mlx5_2", 1, 400.0)]


@pytest.mark.parametrize(
    "devices",
    [[ONE] * 5_000, [{**ONE, "ports": ONE["ports"] * 5_000}], [{**ONE, "name": f"mlx5_{n}"} for n in range(5_000)]],
    ids=["one device many times", "one port many times", "many devices"],
)
def test_a_machine_that_claims_rails_without_end_costs_the_others_no_time(devices: list[dict[str, Any]]) -> None:
    found = {"node1": {"devices": [ONE]}, "node2": {"devices": devices}, "node3": {"devices": devices}}
    settings = {"all_pairs": 16, "sampled": 3, "seed": 0, "timeout": 30, "begin": 60}

    made = plan(found, {name: name for name in found}, settings)

    assert {len(step["rails"]) for steps in made["steps"].values() for step in steps if step["peer"] == "node1"} == {1}
    assert made["limit"] < 4 * 3600


def test_rails_meet_by_name_and_otherwise_by_place() -> None:
    zero, one, other = Rail("mlx5_0", 1), Rail("mlx5_1", 1), Rail("rocep1s0", 1)

    assert matched([zero, one], [one]) == [(one, one)]
    assert matched([zero, one], [other]) == [(zero, other)]


def test_both_sides_of_a_step_agree_and_each_machine_is_measured() -> None:
    rails = {name: [Rail("rxe0", 1, 2.5, software=True)] for name in names(5)}
    steps = schedule(rails, {name: f"10.0.0.{name[4:]}" for name in rails})

    for name, mine in steps.items():
        assert [step["round"] for step in mine] == sorted(step["round"] for step in mine)
        assert mine[0]["bandwidth"]
        for step in mine:
            (other,) = [one for one in steps[step["peer"]] if one["peer"] == name]
            assert (other["round"], other["bandwidth"]) == (step["round"], step["bandwidth"])
            assert other["serves"] != step["serves"]
            assert step["address"] == f"10.0.0.{step['peer'][4:]}"
    measured = [step for mine in steps.values() for step in mine if step["bandwidth"]]
    assert len(measured) <= 2 * 5


def test_a_machine_without_an_active_port_takes_no_part() -> None:
    rails = {"node1": [Rail("rxe0", 1)], "node2": [], "node3": [Rail("rxe0", 1)]}

    steps = schedule(rails, dict.fromkeys(rails, "10.0.0.1"))

    assert sorted(steps) == ["node1", "node3"]
    assert [step["peer"] for step in steps["node1"]] == ["node3"]


def test_the_role_hands_over_what_machines_answered_and_leaves_out_those_that_did_not() -> None:
    compared = plugin("roles/rdma_userspace/action_plugins/rdma_userspace_compared.py")
    port = {"number": 1, "state": "Active", "physical_state": "LinkUp", "rate": 2.5, "width": "1X", "sm_lid": 0}
    device = {"name": "rxe0", "software": True, "node_type": "CA", "board": "", "firmware": ""}
    seen = {"machine": {"rdma": {"devices": [{**device, "ports": [{**port, "link_layer": "Ethernet"}]}]}}}
    hostvars = {
        "node1": {"seen": seen},
        "node2": {"seen": seen, "rdma_userspace_address": "10.0.0.2"},
        "node3": {},
        "node4": {"seen": seen, "node_rdma_unused": "rxe0"},
    }
    measure = {"all_pairs": 16, "sampled": 3, "seed": 1, "timeout": 30, "begin": 120, "token": "x"}

    # What another machine has counts for nothing: who is left is said.
    told = {"hosts": list(hostvars), "seen": "seen"}
    everybody = {**hostvars, "node5": {"seen": {"machine": {"rdma": {"devices": []}}}}}
    found = act(compared, {**told, "measure": measure}, hostvars=everybody)
    group, plan = found["group"], found["plan"]
    assert "plan" not in act(compared, told, hostvars=hostvars)

    assert (group["ports"], group["link_layer"], group["width"]) == (1, "Ethernet", "1X")
    assert sorted(plan["steps"]) == ["node1", "node2"]
    assert plan["steps"]["node1"][0]["address"] == "10.0.0.2"
    assert (plan["patience"], plan["limit"]) == (121, 121 + 60 + 4 * 40 + 30)
    assert (plan["pairs"], plan["token"]) == ("", "x")


def test_a_part_of_all_pairs_is_said_to_be_one() -> None:
    found = {name: {"devices": [ONE]} for name in names(40)}
    measure = {"all_pairs": 16, "sampled": 3, "seed": 1, "timeout": 30, "begin": 120}

    told = plan(found, {name: name for name in found}, measure)["pairs"]

    assert "of 780 pairs, other ones every day" in told
