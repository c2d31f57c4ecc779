"""Whom the DDP program suspects: the odd one of many, nobody in a tie, and not all others for one bad receiver."""

from __future__ import annotations

import math
import sys

import pytest

from provision import content

sys.path.insert(0, str(content.ROOT / "roles/ddp_validation/files"))
from ddp_proof import suspects


@pytest.mark.parametrize("odd", range(5))
def test_the_one_that_differs_from_most_is_odd_wherever_it_stands(odd: int) -> None:
    values = ["x" if position == odd else "a" for position in range(5)]

    assert suspects.odd_ones(values) == ([odd], False)


@pytest.mark.parametrize("values", ["ab", "ba", "aabb", "abab", "abc"])
def test_in_a_tie_nobody_is_odd_and_all_are_named(values: str) -> None:
    assert suspects.odd_ones(values) == (list(range(len(values))), True)


def test_where_all_are_alike_nobody_is_named() -> None:
    assert suspects.odd_ones("aaaa") == ([], False)


def wrong_at(receiver: int, world: int) -> list[list[int]]:
    """What each rank sees wrong where one of them receives badly."""
    return [[other for other in range(world) if other != receiver] if rank == receiver else [] for rank in range(world)]


def wrong_from(sender: int, world: int) -> list[list[int]]:
    """What each rank sees wrong where one of them sends badly."""
    return [[] if rank == sender else [sender] for rank in range(world)]


@pytest.mark.parametrize("world", [3, 8])
def test_a_bad_receiver_is_named_alone_and_so_is_a_bad_sender(world: int) -> None:
    for rank in range(world):
        assert suspects.explain(wrong_at(rank, world)) == ([rank], [])
        assert suspects.explain(wrong_from(rank, world)) == ([rank], [])


def test_of_two_ranks_neither_is_named_for_what_one_sends_and_the_other_receives() -> None:
    assert suspects.explain([[1], []]) == ([], [(1, 0)])
    assert suspects.explain([[], [0]]) == ([], [(0, 1)])


def test_one_bad_way_between_two_of_many_accuses_neither() -> None:
    seen: list[list[int]] = [[] for _ in range(8)]
    seen[5] = [2]

    assert suspects.explain(seen) == ([], [(2, 5)])


@pytest.mark.parametrize("position", range(3))
def test_an_error_that_is_not_a_number_is_the_largest_wherever_it_stands(position: int) -> None:
    errors = {f"t{number}": 1e-7 * (number + 1) for number in range(3)} | {f"t{position}": math.nan}

    assert suspects.largest(errors) == f"t{position}"


@pytest.mark.parametrize(
    "error",
    [
        "CUDA error: operation not supported",
        "peer access is not supported between these two devices",
        "NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported",
        "NCCL error: unhandled system error, backend does not support it",
        "[rank1]: Backend gloo was told to stop; does not support",
    ],
)
def test_a_fault_that_speaks_of_support_is_no_missing_operation(error: str) -> None:
    assert not suspects.lacking(error)


@pytest.mark.parametrize(
    "error", ["Backend gloo does not support reduce_scatter", "ProcessGroupGloo does not support alltoall_base"]
)
def test_an_operation_that_gloo_lacks_is_known_by_gloos_own_words(error: str) -> None:
    assert suspects.lacking(error)


def test_a_rank_is_named_for_the_mean_only_where_it_stands_out() -> None:
    assert suspects.outstanding([0.2, 0.99, 0.5]) == 1
    assert suspects.outstanding([0.99, 0.985, 0.5]) is None
    assert suspects.outstanding([0.9, 0.1, 0.1]) is None
