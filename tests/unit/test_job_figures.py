"""What Prometheus is asked about a job, by Prometheus itself; and how a summary gets into Slurm's database."""

from __future__ import annotations

import base64
import gzip
import json
import os
import runpy
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from provision import content

FILE = content.ROOT / "roles/monitoring/files/job-figures"
START, HOUR, GIB = 1_795_900_000, 3600, 1024**3
#: Of one sample alone.
PEAK = START + 1800
#: Debian's package, unpacked and not installed: it would start a service.
FETCH = "apt-get download prometheus && dpkg-deb --extract prometheus_*.deb ."

#: By the driver's numbers of GPUs, those of their device files. And the GPUs of job 42, by the driver's.
DEVICE = {0: 1, 1: 0}
HELD = (("node1", 0), ("node1", 1), ("node2", 0))

Value = Callable[[int], float | None]


@pytest.fixture
def program() -> dict[str, Any]:
    """The program's names; a value that a test sets there is that of its functions, too."""
    return runpy.run_path(str(FILE))["asked"].__globals__  # type: ignore[no-any-return]


def family(name: str, kind: str, series: dict[str, Value]) -> Iterator[str]:
    """Yield samples of each 15 s, from ten minutes before the job to ten minutes after it, as OpenMetrics."""
    yield f"# TYPE {name.removesuffix('_total')} {kind}"
    for labels, value in series.items():
        for second in range(START - 600, START + HOUR + 600, 15):
            if (sample := value(second)) is not None:
                yield f"{name}{{{labels}}} {sample} {second}"


def history() -> str:
    """Return what machines and Slurm said while job 42 had both GPUs of node1 and one of node2.

    Names and labels are those of node exporter's, of NVIDIA's DCGM exporter and of slurm-metrics. Before the job, the
    first GPU was busy; its sample of then is as old as an exporter's interval.
    """

    def gauge(name: str, values: dict[str, Value]) -> list[str]:
        return list(family(name, "gauge", values))

    def counter(name: str, rates: dict[str, float]) -> list[str]:
        grows: dict[str, Value] = {
            labels: lambda second, rate=rate: rate * (second - START + 600) for labels, rate in rates.items()
        }
        return list(family(name, "counter", grows))

    def gpus(*values: Value) -> dict[str, Value]:
        places = ("node1", 0), ("node1", 1), ("node2", 0), ("node2", 1)
        return {
            f'node="{node}",gpu="{gpu}",device="nvidia{DEVICE[gpu]}",UUID="GPU-{node}{gpu}",modelName="H200"': value
            for (node, gpu), value in zip(places, values, strict=True)
        }

    nodes = ("node1", "node2")
    # Slurm counts by device file, the driver by PCI address.
    running = [(f'node="{node}",gpu="{DEVICE[gpu]}",device="nvidia{DEVICE[gpu]}"', 42) for node, gpu in HELD]
    other = f'node="node2",gpu="{DEVICE[1]}",device="nvidia{DEVICE[1]}"'
    lines = [
        *gauge(
            "DCGM_FI_DEV_GPU_UTIL",
            gpus(
                lambda second: 99 if second < START + 20 else 90 if second == PEAK else 60,
                lambda _: 0,
                # Measured for a quarter of the time.
                lambda second: 50 if second < START + 900 else None,
                lambda _: 100,
            ),
        ),
        *gauge("DCGM_FI_DEV_FB_USED", gpus(lambda second: 21190 if second == PEAK else 20000, *[lambda _: 4] * 3)),
        *gauge("DCGM_FI_DEV_FB_FREE", gpus(lambda second: 60369 if second == PEAK else 61559, *[lambda _: 81555] * 3)),
        *gauge("DCGM_FI_DEV_POWER_USAGE", gpus(*[lambda _: 300.5] * 4)),
        *gauge("DCGM_FI_DEV_GPU_TEMP", gpus(*[lambda _: 40] * 4)),
        *gauge("slurm_node_gpus_declared", {'node="node1"': lambda _: 2, 'node="node2"': lambda _: 2}),
        *gauge(
            "slurm_job_gpu",
            {
                f'{place},jobid="{job}",user="ada"': lambda second: 1 if START < second <= START + HOUR else None
                for place, job in [*running, (other, 43)]
            },
        ),
        *counter(
            "node_cpu_seconds_total",
            {f'node="{node}",cpu="0",mode="{mode}"': rate for node in nodes for mode, rate in MODES.items()},
        ),
        *counter("node_network_receive_bytes_total", {f'node="node1",device="{name}"': 1e6 for name in DEVICES}),
        *counter("node_network_transmit_bytes_total", {f'node="node1",device="{name}"': 2e6 for name in DEVICES}),
        *counter("node_nfs_requests_total", {'node="node1",method="Read",proto="4"': 7.0}),
        *counter(
            "node_disk_read_bytes_total", {'node="node1",device="nvme0n1"': 3e6, 'node="node1",device="dm-0"': 3e6}
        ),
        *counter("node_disk_written_bytes_total", {'node="node1",device="nvme0n1"': 4e6}),
        *counter("node_infiniband_port_data_received_bytes_total", {'node="node1",device="mlx5_0",port="1"': 5e6}),
        *counter("node_infiniband_port_data_transmitted_bytes_total", {'node="node1",device="mlx5_0",port="1"': 6e6}),
        *gauge("node_memory_MemTotal_bytes", {f'node="{node}"': lambda _: 64 * GIB for node in nodes}),
        *gauge("node_memory_MemAvailable_bytes", {'node="node1"': _available, 'node="node2"': lambda _: 60 * GIB}),
    ]
    return "\n".join([*lines, "# EOF\n"])


#: Of a job's node: what its processor did, and devices of which all but one carry what another one has carried.
MODES = {"user": 0.5, "system": 0.25, "idle": 0.2, "iowait": 0.05}
DEVICES = ("eth0", "lo", "eth0.7", "docker0", "veth12", "bond0")


def _available(second: int) -> float:
    # For one sample nearly nothing was left.
    return (4 if second == PEAK else 50) * GIB


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Debian's own Prometheus with that history; its address."""
    there = shutil.which("promtool")
    programs = Path(there).parent if there else content.ROOT / ".cache/promtool/usr/bin"
    if not (programs / "prometheus").exists():
        (kept := content.ROOT / ".cache/promtool").mkdir(parents=True, exist_ok=True)
        subprocess.run(["sh", "-c", FETCH], cwd=kept, check=True, timeout=600)
    here = tmp_path_factory.mktemp("prometheus")
    (here / "history").write_text(history(), encoding="utf-8")
    (here / "prometheus.yml").write_text("global: {}\n", encoding="utf-8")
    made = [programs / "promtool", "tsdb", "create-blocks-from", "openmetrics", "history", "data"]
    subprocess.run(made, cwd=here, check=True, capture_output=True, timeout=600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    options = ["--storage.tsdb.path=data", "--storage.tsdb.retention.time=100y", f"--web.listen-address={place}"]
    with (here / "log").open("w") as log:
        running = subprocess.Popen([programs / "prometheus", *options], cwd=here, stdout=log, stderr=log)
    try:
        until(lambda: "ready to receive" in (here / "log").read_text(), lambda: (here / "log").read_text())
        yield f"http://{place}/api/v1/query"
    finally:
        running.kill()
        running.wait()


def asks(program: dict[str, Any], place: str, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    program["PROMETHEUS"] = place
    program["ask"](*words)
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


@pytest.mark.slow
def test_prometheus_tells_of_a_jobs_gpus_and_nodes_what_they_did_while_it_ran(
    program: dict[str, Any], prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program["MOST_NODES"] = 1  # two questions, put together
    told = asks(program, prometheus, capsys, "42", str(START), str(START + HOUR), "node1", "node2")

    node1 = told["summary"]["nodes"].pop("node1")
    assert told["summary"] == {"nodes": {}, "total_time": HOUR, "gpus": 2}
    # Not that of the job before, 99 %, and not that of a GPU that was measured for a quarter of the time.
    assert node1["gpu_utilization_max"] == {"0": 90, "1": 0}
    assert node1["gpu_utilization"] == {"0": 60.1, "1": 0}
    assert node1["gpu_used_memory"] == {"0": 21190 * 2**20, "1": 4 * 2**20}
    assert node1["gpu_total_memory"] == {"0": 81559 * 2**20, "1": 81559 * 2**20}
    assert node1["gpu_watts"] == {"0": 300.5, "1": 300.5}
    assert told["nodes"]["node2"] == pytest.approx({"cpus": 0.75, "memory": 64 * GIB, "memory_peak": 4 * GIB})
    assert told["nodes"]["node1"] == pytest.approx(
        {
            "cpus": 0.75, "memory": 64 * GIB, "memory_peak": 60 * GIB, "nfs": 7, "disk_in": 3e6, "disk_out": 4e6,
            "network_in": 1e6, "network_out": 2e6, "network_in_peak": 1e6, "network_out_peak": 2e6,
            "rdma_in": 5e6, "rdma_out": 6e6, "rdma_in_peak": 5e6, "rdma_out_peak": 6e6,
        }
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "start", "end"), [("42", START, START + 50), ("44", START, START + HOUR), ("42", START - 600, START - 60)]
)
def test_of_a_job_without_samples_nothing_is_told(
    program: dict[str, Any], prometheus: str, capsys: pytest.CaptureFixture[str], job: str, start: int, end: int
) -> None:
    told = asks(program, prometheus, capsys, job, str(start), str(end), "node1")

    assert told["summary"]["nodes"] == {}


def test_a_prometheus_that_does_not_answer_is_told(program: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    told = asks(program, "http://127.0.0.1:1/api/v1/query", capsys, "42", str(START), str(START + HOUR), "node1")

    assert told == {"problem": "Prometheus: <urlopen error [Errno 111] Connection refused>"}


@pytest.fixture
def controller(program: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker that prints what the file ``sacct`` has, and keeps the words of a sacctmgr; Prometheus knows job 42."""
    script = (
        f'#!/bin/sh\nwhile [ "$1" != sacct ] && [ "$1" != sacctmgr ]; do shift; done\n'
        f'[ "$1" = sacct ] && exec cat {tmp_path}/sacct\nfor word; do printf "%s\\n" "$word"; done >>{tmp_path}/told\n'
    )
    (tmp_path / "docker").write_text(script)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    gpu = {"node": "node1", "gpu": "0"}
    program["asked"] = lambda question, _: [(gpu, 200.0)] if '"42"' in question else []
    return tmp_path


def rows(*jobs: tuple[str, ...]) -> str:
    return "".join("\x1f".join(job) + "\n" for job in jobs)


def job(
    name: str = "42", raw: str = "42", *, ago: int = 120, took: int = HOUR, gres: str = "gres/gpu=1", said: str = ""
) -> tuple[str, ...]:
    end = int(time.time()) - ago
    return name, raw, str(end - took), str(end), f"billing=1,cpu=1,{gres},mem=1G,node=1", said, "lab"


def test_the_summary_of_a_job_that_has_ended_stands_beside_an_administrators_words(
    program: dict[str, Any], controller: Path
) -> None:
    (controller / "sacct").write_text(rows(job("40_3", "42", said="refunded, ticket 7")))

    for one in program["ended"](time.time() - HOUR, time.time()):
        program["kept"](one)

    *words, text = (controller / "told").read_text().splitlines()
    # A job of an array by the array's number and its own: the number alone is that of all of them.
    assert words == ["sacctmgr", "-i", "modify", "job", "where", "JobID=40_3", "set"]
    before, _, packed = text.removeprefix("AdminComment=").rpartition(" JS1:")
    assert before == "refunded, ticket 7"
    told = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert told["nodes"]["node1"]["gpu_utilization"] == {"0": 200.0}
    assert (told["total_time"], told["gpus"]) == (HOUR, 1)


@pytest.mark.parametrize(
    "of",
    [
        {"said": "two\nlines"},
        {"gres": "license/a=1"},
        {"said": "JS1:AAAA"},
        {"ago": 10},
        {"ago": 2 * HOUR},
        {"took": 59},
        {"raw": "Unknown"},
    ],
    ids=str,
)
def test_other_jobs_are_left_alone(program: dict[str, Any], controller: Path, of: dict[str, Any]) -> None:
    (controller / "sacct").write_text(rows(job(**of), ("42", "42")))

    assert program["ended"](time.time() - HOUR, time.time()) == []


def test_of_a_job_that_nobody_has_measured_nothing_is_written(program: dict[str, Any], controller: Path) -> None:
    (controller / "sacct").write_text(rows(job("43", "43")))

    (found,) = program["ended"](time.time() - HOUR, time.time())
    program["kept"](found)

    assert not (controller / "told").exists()


def test_a_job_whose_summary_fails_holds_up_no_other_and_nobody_is_asked_twice(
    program: dict[str, Any], controller: Path
) -> None:
    (controller / "sacct").write_text(rows(job("41", "41"), job(), job("43", "43")))
    asked, failing = [], [True]

    def kept(one: dict[str, str]) -> None:
        asked.append(one["JobID"])
        if one["JobID"] == "41" and failing:
            raise OSError("sacctmgr: no")

    program["kept"], done = kept, set()
    look = (time.time() - HOUR, time.time(), done)
    assert program["looked"](*look) is False
    assert sorted(asked) == ["41", "42", "43"]
    failing.clear()
    assert program["looked"](*look) is True
    assert asked[3:] == ["41"]


def test_a_slurm_that_fails_is_no_cluster_without_jobs(program: dict[str, Any], controller: Path) -> None:
    (controller / "docker").write_text("#!/bin/sh\necho no database >&2\nexit 1\n")

    with pytest.raises(OSError, match="sacct: no database"):
        program["ended"](time.time() - HOUR, time.time())
