"""What a job used, from Slurm's own JSON; and the three commonest wastes, each with what to do about it."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from provision.slurm.job_use import GIB, Gpu, Use, duration, from_scontrol, gpus_in, held, kept, size, wastes

HOUR = 3600
#: A job of two nodes that wastes nothing: GPUs are busy, and so are processors and memory.
GOOD = Use(
    "42", end=1, elapsed=HOUR, nodes_count=2, cpus=32, cpu_seconds=20.0 * HOUR, memory_asked=64 * GIB,
    memory_used=40 * GIB, memory_most=40 * GIB, gpus_held=4,
    gpus=tuple(Gpu(f"node{number // 2}", str(number % 2), 80.0, 100.0) for number in range(4)),
)  # fmt: skip


def idle(count: int, of: int = 4, use: float = 80.0) -> tuple[Gpu, ...]:
    return tuple(Gpu("node1", str(number), *((0.0, 4.9) if number < count else (use, 100.0))) for number in range(of))


def names(**changed: Any) -> list[str]:
    return [waste.name for waste in wastes(replace(GOOD, **changed))]


def test_a_job_that_uses_what_it_has_is_told_nothing() -> None:
    assert names() == []


def test_gpus_that_were_never_used_are_a_waste_and_the_others_are_what_to_ask_for() -> None:
    (waste,) = wastes(replace(GOOD, gpus=idle(3)))

    assert (waste.name, waste.seen) == ("idle-gpus", "3 of 4 GPUs were never used more than 5 %")
    assert waste.fix.startswith("ask for 1, or start a process for each GPU")
    assert "torch.cuda.is_available()" in wastes(replace(GOOD, gpus=idle(1, of=1), gpus_held=1))[0].fix
    # One that was used for a moment was used, and of one without figures nothing is known.
    assert names(gpus=(replace(GOOD.gpus[0], use=0.1, peak=5.0), *GOOD.gpus[1:]), cpu_seconds=None) == []
    assert held(replace(GOOD, gpus=idle(2, of=3))) == "held 4, used 1, 1 not measured"
    assert names(gpus=()) == []


@pytest.mark.parametrize(
    ("busy", "use", "wasted"),
    [(1.0, 30.0, True), (4.0, 30.0, True), (0.5, 30.0, False), (7.0, 30.0, False), (1.0, 50.0, False)],
)
def test_gpus_that_wait_while_one_processor_for_each_is_busy_want_more_processes_that_load(
    busy: float, use: float, wasted: bool
) -> None:
    assert (names(gpus=idle(0, use=use), cpu_seconds=busy * HOUR) == ["one-loader"]) is wasted


def test_how_many_processes_load_follows_from_the_processors_that_the_job_has() -> None:
    slow = replace(GOOD, gpus=idle(0, use=20.0), cpu_seconds=1.0 * HOUR)

    assert wastes(slow)[0].fix == "load data in more processes: DataLoader(num_workers=7) in PyTorch"
    assert wastes(replace(slow, cpus=4))[0].fix.startswith("load data in more processes: --cpus-per-gpu=8, and ")
    assert names(gpus=idle(0, use=20.0), cpu_seconds=None) == []


@pytest.mark.parametrize(("asked", "used", "wasted"), [(64, 31.9, True), (64, 32, False), (2, 0.01, False)])
def test_memory_beyond_twice_of_what_was_used_is_a_waste(asked: float, used: float, wasted: bool) -> None:
    most = int(used * GIB)

    assert (names(memory_asked=int(asked * GIB), memory_used=most, memory_most=most) == ["unused-memory"]) is wasted


def test_the_memory_to_ask_for_has_a_fifth_more_than_was_used_where_one_node_used_it() -> None:
    used = replace(GOOD, memory_used=10 * GIB, memory_most=10 * GIB)
    (waste,) = wastes(replace(used, nodes_count=1))

    assert waste.seen == "it had 64.00 GB of memory, and all its steps used 10.00 GB at most"
    assert waste.fix == "ask for less: --mem=12G"
    # Of several, one may have used nearly all of it.
    assert "MaxRSSNode" in wastes(used)[0].fix
    # Steps that ran side by side have used it together. What was not measured was not unused.
    assert names(memory_used=10 * GIB, memory_most=40 * GIB) == []
    assert names(memory_used=None, memory_most=None) == []


def test_a_job_that_runs_is_as_old_as_it_is_and_old_releases_words_are_read() -> None:
    entry = {"job_id": 9, "start_time": 100, "end_time": 9000, "time_limit": 2**32 - 1, "array_job_id": 9}

    (runs,) = from_scontrol({"jobs": [{**entry, "job_state": "RUNNING"}]}, 700)
    (failed,) = from_scontrol({"jobs": [{**entry, "job_state": "FAILED", "exit_code": 256}]}, 9999)

    assert (runs.elapsed, runs.ended, runs.limit, runs.job) == (600, False, 0, "9")
    assert (failed.elapsed, failed.exit_code) == (8900, 1)


def test_of_a_short_job_nothing_is_told() -> None:
    assert names(elapsed=299, gpus=idle(4), memory_most=1) == []


def packed(told: Any) -> str:
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps(told).encode(), mtime=0)).decode()


def test_a_summary_is_read_beside_what_an_administrator_has_written() -> None:
    of_node = {
        "gpu_utilization": {"10": 30.5, "2": 0, "3": "x", "4": 1},
        "gpu_utilization_max": {"10": 99, "2": 0, "3": 1},
        "gpu_used_memory": {"10": 5},
    }
    told = {"nodes": {"node1": of_node, "node2": [], "node3": {}}, "total_time": 60, "gpus": 2}

    # One without figures of its use is not among them.
    expected = (Gpu("node1", "2", 0, 0), Gpu("node1", "10", 30.5, 99, 5))
    assert kept(f"refunded, see ticket 7 {packed(told)}") == kept(packed(told)) == expected
    assert expected[0].idle
    assert not expected[1].idle


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "refunded",
        "JS1:None",
        "JS1:Short",
        "JS1:AAAAAAAAAAAAAAAAAAAAAAAA",
        packed([]),
        packed({"nodes": 7}),
        packed(0),
    ],
)
def test_what_is_no_summary_says_nothing_of_gpus(comment: str) -> None:
    assert kept(comment) == ()


@pytest.mark.parametrize("told", [None, [], {"nodes": {"n": {"gpu_utilization": {"0": -1}}}}, {"nodes": {"n": 1}}])
def test_hostile_figures_are_none(told: Any) -> None:
    assert gpus_in(told) == ()


def test_sizes_and_times_are_as_slurm_writes_them() -> None:
    assert [size(value) for value in (0, 1536, 3 * 1024**5)] == ["0.00 B", "1.50 KB", "3072.00 TB"]
    assert [duration(value) for value in (59, 3661, 90000)] == ["00:00:59", "01:01:01", "1-01:00:00"]
