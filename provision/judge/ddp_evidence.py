"""What the DDP job's judge looks at: what machines printed, checked and bounded, each machine's for itself. Pure.

A node's answer can be anything. What does not pass the models here is a problem of that node alone, named in its
``problems``; the rest of its answer, and the other nodes', count all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from provision.model.text import clean

#: Characters of one machine's answer that are read; a node of eight ranks needs a tenth.
MAX_ANSWER = 8 << 20


def one_line(text: str, limit: int = 500) -> str:
    """Return text for a report: one line, nothing that a terminal obeys."""
    return " ".join(clean(text, limit).split())


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds control characters")
    return text


Word = Annotated[str, StringConstraints(max_length=255), AfterValidator(_printable)]
Line = Annotated[str, AfterValidator(one_line)]
Outcome = Literal["pass", "warn", "fail", "unknown", "skip"]
Rank = Annotated[int, Field(ge=0, le=65_535)]


class _Input(BaseModel):
    """What a machine printed: no conversions, and never quoted in an error."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", hide_input_in_errors=True)


class Slip(_Input):
    """Why a rank gave up: by its own fault, or because it could not talk to the others."""

    kind: Literal["own", "communication"]
    text: Line


class Record(_Input):
    """One rank's own record, as it stood when the rank ended."""

    run_id: Word
    rank: Rank
    node: Word
    state: Literal["running", "done", "failed", "terminated"]
    step: Word
    waiting: Word = ""
    error: Slip | None = None
    parameters: Word | None = None
    outcomes: Annotated[dict[Word, Outcome], Field(max_length=32)] = {}


class Accused(_Input):
    """One accusation: a rank, or a machine as a whole, and what speaks against it."""

    rank: Rank | None
    node: Line
    parameter: Line = ""
    detail: Line


class Step(_Input):
    """What the program says about one step. ``split`` names those who differ where nobody can tell who is wrong."""

    verdict: Outcome
    observed: Line
    expected: Line
    guilty: Annotated[list[Accused], Field(max_length=1024)] = []
    split: Line = ""
    digest: Word = ""


class Result(_Input):
    """What rank 0 wrote after the last barrier."""

    run_id: Word
    job_id: Word
    world: Rank
    backend: Word
    device: Word
    simulated: Annotated[list[Word], Field(max_length=16)]
    sabotage: Word
    program: Word = ""
    steps: Annotated[dict[Word, Step], Field(max_length=32)]


class Job(_Input):
    """Slurm's word on the job: ``out`` are its lines on nodes out of service; no ``exit_code`` while there is none."""

    run_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{0,64}$")] = ""
    id: Annotated[str, StringConstraints(pattern=r"^[0-9]{0,20}$")] = ""
    state: Word = ""
    reason: Line = ""
    exit_code: Annotated[int, Field(ge=0, le=65_535)] | None = None
    out: Annotated[list[Line], Field(max_length=4096)] = []


@dataclass(frozen=True)
class Node:
    """What one machine has of the run: logs are last lines, ``nccl`` its lines on connections.

    ``figures`` are as it printed them: :mod:`provision.judge.ddp_figures` reads them, and nothing is judged by them.
    """

    records: Sequence[Record] = ()
    result: Result | None = None
    logs: Mapping[int, Sequence[str]] = field(default_factory=dict)
    node_log: Sequence[str] = ()
    job_log: Sequence[str] = ()
    nccl: Sequence[str] = ()
    problems: Sequence[str] = ()
    figures: Any = None


@dataclass(frozen=True)
class Wants:
    """What the inventory declares: ranks by node, GPUs on each of these nodes, what is simulated, what must be.

    ``unused`` are the RDMA ports that jobs do not use, by node.
    ``release`` is the digest of this release's program, empty where none is to be compared.
    """

    ranks: Mapping[str, int]
    gpus: int = 0
    simulated: Sequence[str] = ()
    gpudirect_required: bool = False
    unused: Mapping[str, Sequence[str]] = field(default_factory=dict)
    release: str = ""

    @property
    def cuda(self) -> bool:
        """Tell whether real GPUs must have done the work."""
        return self.gpus > 0 and "gpu" not in self.simulated


@dataclass(frozen=True)
class Evidence:
    """All of one job. ``rdma`` is what each node told of its adapters, None where it was not asked."""

    wants: Wants
    job: Job
    nodes: Mapping[str, Node]
    rdma: Mapping[str, Any]
    directory: str


_Model = TypeVar("_Model", bound=_Input)


def _document(text: str) -> dict[str, Any] | None:
    """Return a printed JSON object; None where a machine printed anything else."""
    if len(text) > MAX_ANSWER:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _read(model: type[_Model], data: Any, what: str, problems: list[str]) -> _Model | None:
    """Return the data as the model has it; None, and a line more in ``problems``, where it is not that."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        problems.append(one_line(f"{what}{f', {where}' if where else ''}: {first['msg']}", 200))
        return None


def _lines(value: Any, limit: int) -> list[str]:
    """Return the texts in a list of lines, each as one line of a report."""
    return [one_line(line) for line in value[:limit] if isinstance(line, str)] if isinstance(value, list) else []


def _listed(value: Any) -> list[Any]:
    return value[:1024] if isinstance(value, list) else []


def _node(name: str, text: str, run_id: str) -> Node:
    """Return what one machine printed of this run. An empty text is a machine that was not asked, or has nothing."""
    told = _document(text)
    if told is None:
        return Node(problems=["what it printed is no document"] if text.strip() else [])
    problems = _lines(told.get("problems"), 20)
    read = [_read(Record, record, "a rank's record", problems) for record in _listed(told.get("records"))]
    records = []
    for record in (record for record in read if record is not None and record.run_id == run_id):
        if record.node == name:
            records.append(record)
        else:
            problems.append(one_line(f"its record of rank {record.rank} names {record.node}", 200))
    given = told.get("result")
    result = None if given is None else _read(Result, given, "the result", problems)
    given_logs = told.get("logs")
    logs = given_logs if isinstance(given_logs, dict) else {}
    return Node(
        records=sorted(records, key=lambda record: record.rank),
        result=result if result is not None and result.run_id == run_id else None,
        logs={
            int(rank): _lines(log, 50)
            for rank, log in logs.items()
            if rank.isascii() and rank.isdigit() and len(rank) < 6
        },
        node_log=_lines(told.get("node_log"), 50),
        job_log=_lines(told.get("job_log"), 50),
        nccl=_lines(told.get("nccl"), 20_000),
        problems=problems,
        figures=told.get("figures"),
    )


def evidence_from(
    job: Any,
    complaint: str,
    left: Mapping[str, str],
    wants: Wants,
    rdma: Mapping[str, Any],
    directory: str,
) -> Evidence:
    """Return the evidence for :func:`provision.judge.ddp.checks`.

    Args:
        job: ddp_submit.py's document on this job, and ``complaint`` what it said on its standard error.
        left: what ddp_collect.py printed, by node.
        wants: what the inventory declares.
        rdma: what each node's module ``machine_facts`` told of its adapters; None where it was not asked.
        directory: where the nodes have this user's runs.
    """
    problems: list[str] = []
    told = _read(Job, job, "ddp_submit.py's answer", problems) if isinstance(job, dict) else None
    if told is None:
        told = Job(reason=one_line(complaint) or "; ".join(problems) or "ddp_submit.py printed nothing")
    return Evidence(
        wants=wants,
        job=told,
        nodes={node: _node(node, left.get(node, ""), told.run_id) for node in wants.ranks},
        rdma=dict(rdma),
        directory=f"{directory}/{told.run_id}",
    )


def documents(text: str) -> list[Any]:
    """Return ddp_submit.py's documents, one for each job that it was given; none where it printed anything else."""
    told = _document(text)
    return _listed(told.get("jobs")) if told else []
