"""NCCL's log tells by which way data went, in the words of every release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def port_of(name: str, rate: float = 400, layer: str = "InfiniBand", state: str = "Active") -> dict[str, Any]:
    port = {"number": 1, "state": state, "rate": rate, "link_layer": layer}
    return {"name": name, "software": False, "ports": [port]}


def machine(*devices: dict[str, Any], gpus: int = 8, unused: tuple[str, ...] = ()) -> dict[str, nccl.Rails]:
    return {"gpu01": nccl.Rails({"devices": list(devices)}, gpus, unused)}


def connected(*nics: int, shown: int = 8, more: str = "") -> dict[str, str]:
    """A log in which NCCL was shown so many ports, and connected over some of them."""
    listed = " ".join(f"[{number}]mlx5_{number}:1/IB" for number in range(shown))
    lines = [f"gpu01:1:2 [0] NCCL INFO NET/IB : Using {listed} [RO]; OOB eno1:10.0.0.1<0>", *more.splitlines()]
    lines += [f"gpu01:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/{nic}/GDRDMA" for nic in nics]
    return {"gpu01": "\n".join(lines)}


MERGED = """\
x NCCL INFO NET/IB : Made virtual device [8] name=mlx5_0+mlx5_1 speed=800000 ndevs=2
x NCCL INFO NET/IB : Made virtual device [9] name=mlx5_2+mlx5_3 speed=800000 ndevs=2"""

EIGHT = [port_of(f"mlx5_{number}") for number in range(8)]


def rails(logs: dict[str, str], has: dict[str, nccl.Rails]) -> Check:
    [check] = nccl.checks(logs, rails=has)
    return check


def test_one_rail_of_eight_is_no_pass_and_those_that_nccl_was_not_shown_are_named() -> None:
    check = rails(connected(0, shown=1), machine(*EIGHT))

    assert check.verdict == "fail"
    assert "none over mlx5_1:1, mlx5_2:1, mlx5_3:1, mlx5_4:1, mlx5_5:1, mlx5_6:1, mlx5_7:1 of gpu01" in check.observed
    assert "NCCL_IB_HCA" in check.cause


def test_a_rail_that_nccl_saw_and_did_not_take_is_a_warning() -> None:
    check = rails(connected(0, 1, 2, 3, 4, 5, 6), machine(*EIGHT))

    assert (check.verdict, "none over mlx5_7:1 of gpu01" in check.observed) == ("warn", True)


@pytest.mark.parametrize(
    ("logs", "has"),
    [
        pytest.param(connected(*range(8)), machine(*EIGHT), id="all are used"),
        pytest.param(
            connected(*range(8)),
            machine(*EIGHT, port_of("mlx5_8", 200, "Ethernet"), port_of("mlx5_9", 200, "Ethernet")),
            id="storage adapters of another kind",
        ),
        pytest.param(
            connected(*range(8)), machine(*EIGHT, port_of("mlx5_8"), port_of("mlx5_9")), id="more ports than GPUs"
        ),
        pytest.param(
            connected(0, 1, 2, 3, shown=4),
            machine(*EIGHT[:4], port_of("mlx5_4"), unused=("mlx5_4",)),
            id="a port that the inventory leaves out",
        ),
        pytest.param(
            connected(0, 1, 2, 3, shown=4), machine(*EIGHT[:4], port_of("mlx5_4", state="Down")), id="no cable"
        ),
        pytest.param(connected(0, 1), machine(*EIGHT, gpus=2), id="two GPUs beside eight ports"),
        pytest.param(connected(0, 1, shown=2), machine(*EIGHT[:2]), id="eight GPUs share two ports"),
        pytest.param(connected(8, 9, shown=4, more=MERGED), machine(*EIGHT[:4]), id="two ports merged into one device"),
        pytest.param({"gpu01": connected(0)["gpu01"].partition("\n")[2]}, machine(*EIGHT), id="a log without a list"),
        pytest.param(connected(0), {"gpu01": nccl.Rails(None, 8)}, id="a machine that told nothing"),
        pytest.param(connected(0), {"gpu01": nccl.Rails({"devices": [{"name": 7}, "x"]}, 8)}, id="nonsense"),
    ],
)
def test_no_rail_is_missed_where_all_is_well_or_nobody_can_tell(
    logs: dict[str, str], has: dict[str, nccl.Rails]
) -> None:
    assert rails(logs, has).verdict == "pass"
