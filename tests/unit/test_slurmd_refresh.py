"""Which drained nodes come back by themselves: those that slurmctld took out at a registration, and no others."""

from __future__ import annotations

from typing import Any

import pytest
from machines import plugin

to_resume = plugin("roles/slurm_service/library/slurmd_refresh.py").to_resume

LOW = "Low RealMemory (reported:1000 < 100.00% of configured:2000)"


def node(*state: str, reason: str = LOW, author: str = "slurm") -> dict[str, Any]:
    """Return the part of ``scontrol show node --json`` that is read."""
    return {"name": "node1", "state": list(state), "reason": reason, "reason_set_by_user": author}


@pytest.mark.parametrize(
    "reason",
    [
        LOW,
        "Low socket*core*thread count, Low CPUs",
        "Low CPUs",
        "gres/gpu count reported lower than configured (1 < 2)",
        "gres/gpu count too low (1 < 2)",
    ],
)
def test_a_node_that_now_registers_as_declared_comes_back(reason: str) -> None:
    assert to_resume(node("IDLE", "DRAIN", reason=reason)) is True


def test_a_node_that_has_rebooted_by_itself_comes_back_once_it_answers() -> None:
    assert to_resume(node("DOWN", reason="Node unexpectedly rebooted")) is True
    assert to_resume(node("DOWN", "NOT_RESPONDING", reason="Node unexpectedly rebooted")) is None


def test_a_node_that_was_away_and_came_back_with_less_comes_back_once_it_registers_as_declared() -> None:
    assert to_resume(node("DOWN")) is True
    assert to_resume(node("DOWN", "DRAIN")) is True
    assert to_resume(node("DOWN", "NOT_RESPONDING")) is None
    assert to_resume(node("DOWN", "INVALID_REG")) is None


def test_a_node_that_still_has_less_than_declared_is_waited_for() -> None:
    assert to_resume(node("IDLE", "DRAIN", "INVALID_REG")) is None


@pytest.mark.parametrize(
    "drained",
    [
        node("IDLE", "DRAIN", reason="bad fan", author="root"),
        node("IDLE", "DRAIN", reason="bad fan", author="slurm"),
        node("IDLE", "DRAIN", author="root"),
        node("IDLE", "DRAIN", reason="batch job complete failure"),
        node("DOWN", "DRAIN", reason="Node unexpectedly rebooted"),
        node("DOWN", reason="Node unexpectedly rebooted", author="root"),
        node("DOWN", reason="bad fan", author="root"),
        node("DOWN", author="root"),
        node("IDLE", reason=LOW),
        node("MIXED", reason="", author=""),
        {"name": "node1"},
    ],
    ids=lambda drained: f"{drained.get('state')} {drained.get('reason')}",
)
def test_what_somebody_else_took_out_stays_out(drained: dict[str, Any]) -> None:
    assert to_resume(drained) is False
