"""Hostlists: short, exact, and in a form that every Slurm reads."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision import hostlist
from provision.errors import ClusterctlError

NAMES = st.sets(st.from_regex(r"[a-z]{1,3}[0-9]{0,3}-?[a-z]{0,2}[0-9]{0,4}", fullmatch=True), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["node1", "node2", "node3"], "node[1-3]"),
        (["node3", "node1", "node1"], "node[1,3]"),
        (["node08", "node09", "node10"], "node[08-10]"),
        (["gpu1"], "gpu1"),
        (["login"], "login"),
        (["node2", "login", "node1"], "node[1-2],login"),
        ([], ""),
    ],
)
def test_names_fold_as_an_admin_would_write_them(names: list[str], folded: str) -> None:
    assert hostlist.fold(names) == folded


@pytest.mark.parametrize("names", [["rack1-gpu1", "rack2-gpu1"], ["gpu1a", "gpu2a"]])
def test_a_range_never_stands_inside_a_name(names: list[str]) -> None:
    # ClusterShell by itself would write rack[1-2]-gpu1 and gpu[1-2]a, which Slurm 22.05 refuses.
    assert hostlist.fold(names) == ",".join(names)


@given(NAMES)
def test_folding_loses_and_invents_no_node(names: set[str]) -> None:
    assert set(hostlist.expand(hostlist.fold(names))) == names


@given(NAMES)
def test_a_bracket_always_ends_the_name(names: set[str]) -> None:
    assert re.search(r"\][^,]", hostlist.fold(names)) is None


@pytest.mark.parametrize(
    "text",
    ["", "node[1-", "node[5-1]", "node[a-b]", "node[1-]", "node[1,,2]", "a,,b", "@all", "a!b", "node1 node2", "n\n1"],
)
def test_what_is_no_hostlist_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        hostlist.expand(text)

    assert "is not a list of nodes" in refused.value.problem
    assert "node[01-16]" in refused.value.fix


@pytest.mark.parametrize("text", ["n[1-999999999]", "n[1-999][1-999]", "a[1-40000],b[1-40000]"])
def test_a_hostlist_that_would_fill_the_memory_is_refused_before_it_does(text: str) -> None:
    with pytest.raises(ClusterctlError, match="more than 65536"):
        hostlist.expand(text)


def test_ten_thousand_names_of_a_thousand_racks_come_back_unchanged() -> None:
    names = {f"rack{number // 10:03d}-gpu{number % 10}" for number in range(10_000)}

    assert set(hostlist.expand(hostlist.fold(names))) == names
