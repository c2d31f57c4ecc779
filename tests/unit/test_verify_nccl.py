"""NCCL's log tells by which way data went, in the words of every release."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.judge import nccl
from provision.judge.nccl import edges
from provision.model.checks import Check

LOGS = Path(__file__).parent / "fixtures" / "nccl"


def judge(logs: dict[str, str], bridges: str = "") -> Check:
    [check] = nccl.checks(logs, bridges=bridges)
    return check


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "way"),
    [("all_direct_dmabuf", "DMA-BUF"), ("all_direct_peermem_2_7", "peer memory"), ("all_direct_c2c", "peer memory")],
)
def test_every_connection_with_the_mark_is_a_pass_and_the_way_is_named(name: str, way: str) -> None:
    check = judge({"gpu01": log(name)})

    assert check.verdict == "pass"
    assert check.observed == f"2 connections of 1 machines, all with GPUDirect RDMA by {way}"


def test_connections_within_a_machine_are_none() -> None:
    assert {(edge.source, edge.target) for edge in edges(log("all_direct_dmabuf"))} == {(8, 0), (0, 8)}


def test_rdma_without_gpudirect_is_named_by_machine_and_rail() -> None:
    check = judge({"gpu01": log("all_direct_dmabuf"), "gpu08": log("two_rails_without")}, bridges="0000:a0:01.0")

    assert check.verdict == "warn"
    assert check.observed == "NCCL used RDMA without GPUDirect on gpu08: rails 2, 6"
    assert "mlx5_2" in check.cause
    assert "ACS is on at 0000:a0:01.0" in check.cause


def test_tcp_instead_of_rdma_is_a_failure() -> None:
    check = judge({"gpu01": log("sockets")})

    assert (check.verdict, check.observed) == ("fail", "NCCL used TCP on gpu01")


@pytest.mark.parametrize("logs", [{}, {"gpu01": ""}, {"gpu01": "one_machine"}])
def test_without_a_connection_over_the_network_nothing_is_proven(logs: dict[str, str]) -> None:
    assert judge({host: log(name) if name else "" for host, name in logs.items()}).verdict == "unknown"


def test_one_silent_machine_proves_nothing_about_it() -> None:
    check = judge({"gpu01": log("all_direct_dmabuf"), "gpu02": ""})

    assert check.verdict == "unknown"
    assert "gpu02" in check.observed
