"""What a DDP job has measured, for a report to draw: losses, gradient, step times of each rank. Pure, judges nothing.

Rank 0's node wrote it, so it is bounded and typed as its result is; what cannot be read is left out and fails nothing.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from provision.judge.ddp_evidence import Evidence, Line
from provision.judge.ddp_job import Court, adapters


def _finite(number: float | None) -> float | None:
    """Return a number with six digits, None for what is none: JSON has no word for it."""
    return float(f"{number:.6g}") if number is not None and math.isfinite(number) else None


Number = Annotated[float | None, AfterValidator(_finite)]
#: Steps of a curve that are kept; the proof takes 120.
Curve = Annotated[list[Number], Field(max_length=2048)]


class _Figures(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class _Learning(_Figures):
    losses: Curve = []


class _Reference(_Figures):
    curve: Curve = []
    largest: Number = None


class _Gradients(_Figures):
    relative_error: Number = None
    parameter: Line = ""


class _Times(_Figures):
    p50: Number = None
    p95: Number = None


class _Speed(_Figures):
    per_rank: Annotated[list[dict[str, _Times]], Field(max_length=65_536)] = []
    samples_per_s: Number = None
    tokens_per_s: Number = None


_Part = TypeVar("_Part", bound=_Figures)


def _part(model: type[_Part], figures: Any, name: str) -> _Part:
    """Return one part of the figures, an empty one where it is not what the program writes."""
    try:
        return model.model_validate(figures.get(name) or {}) if isinstance(figures, dict) else model()
    except ValidationError:
        return model()


def training(evidence: Evidence) -> dict[str, Any]:
    """Return one job's figures, as the document of ``clusterctl verify`` has them under ``training``."""
    court = Court(evidence)
    node = evidence.nodes.get(court.author) if court.result is not None else None
    told = None if node is None else node.figures
    reference, gradients, speed = (
        _part(_Reference, told, "reference"), _part(_Gradients, told, "gradients"), _part(_Speed, told, "speed"),
    )  # fmt: skip
    places = {record.rank: record.node for record in court.records}
    return {
        "job": evidence.job.id,
        "backend": court.result.backend if court.result else "",
        "device": court.result.device if court.result else "",
        "nodes": [
            {"name": name, "ranks": ranks, "adapters": max(0, adapters(evidence.rdma.get(name)))}
            for name, ranks in evidence.wants.ranks.items()
        ],
        "losses": _part(_Learning, told, "learning").losses,
        "reference": reference.curve,
        "reference_difference": reference.largest,
        "gradient_difference": gradients.relative_error,
        "gradient_parameter": gradients.parameter,
        "samples_per_s": speed.samples_per_s,
        "tokens_per_s": speed.tokens_per_s,
        "ranks": [
            {"rank": rank, "node": places.get(rank, ""), **_step_times(times)}
            for rank, times in enumerate(speed.per_rank)
        ],
    }


def _step_times(times: dict[str, _Times]) -> dict[str, float | None]:
    """Return a rank's seconds for a step, and ``own``: those in which it waits for no other, as backward does."""
    whole = times.get("step", _Times())
    own = [times[name].p50 for name in ("data", "forward", "optimiser") if name in times]
    known = [seconds for seconds in own if seconds is not None]
    return {"p50": whole.p50, "p95": whole.p95, "own": _finite(sum(known)) if len(known) == 3 else None}
