"""clusterctl job: what the controller and Prometheus have answered, put together; and what is missing, named."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from provision.cli.main import cli
from provision.errors import ClusterctlError, ExitCode
from provision.report import job as report
from provision.report.summary import Printer

HERE = Path(__file__).with_name("fixtures") / "job_use"
SACCT = (HERE / "sacct.json").read_text(encoding="utf-8")
SCONTROL = (HERE / "scontrol.json").read_text(encoding="utf-8")
ENDED, RUNS, WAITS = (json.dumps({"jobs": [job]}) for job in json.loads(SACCT)["jobs"])
NODE = {
    "gpu_utilization": {"0": 60.1, "1": 0},
    "gpu_utilization_max": {"0": 90, "1": 0},
    "gpu_used_memory": {"0": 2**34, "1": 2**22},
    "gpu_total_memory": {"0": 2**35, "1": 2**35},
    "gpu_watts": {"0": 300.5},
}
FIGURES = {
    "summary": {"nodes": {"node1": NODE}, "total_time": 600, "gpus": 2},
    "nodes": {
        "node1": {
            "cpus": 2.0, "memory_peak": 2**35, "memory": 2**36, "network_in": 2**21, "network_out": 2**20,
            "network_in_peak": 2**25, "network_out_peak": 2**22, "nfs": 7.0, "disk_in": 0, "disk_out": 2**20,
        },
        "node2": {"cpus": 1.5, "network_in": 2**21, "network_out": 2**20, "memory_peak": 2**33},
    },
}  # fmt: skip


def answer(**more: Any) -> dict[str, Any]:
    whole = {"sacct": ENDED, "scontrol": "", "silent": "", "others": "9\n", "figures": json.dumps(FIGURES)}
    return {**whole, "unreached": "", **more}


def shown(told: dict[str, Any], watcher: str = "head", name: str = "9") -> list[str]:
    stream = io.StringIO()
    report.show(Printer(stream), report.found(told, name, watcher))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_a_job_is_told_in_a_screenful_with_what_it_wasted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_time", lambda seconds: f"@{seconds}")

    lines = shown(answer())

    assert lines == [
        "job 9 train: completed, exit code 0",
        "user            ada (ada), account lab, partition all",
        "time            @1795922057 to @1795922373: 00:05:16 of 01:00:00",
        "had             head: 4 CPUs, 1.95 GB of memory, 2 GPUs",
        "GPUs            held 2, used 1; 30 % on average",
        "GPU node1 0     60 % on average, 90 % at most; 16.00 GB of 32.00 GB at most; 300 W",
        "GPUs unused     node1: 1",
        "CPUs            0.0 of 4 on average (1 %)",
        "memory          308.42 MB at most, of 1.95 GB",
        "its nodes       which it had alone",
        "nodes: CPUs     3.5 busy on average",
        "nodes: memory   32.00 GB at most, on node1",
        "nodes: network  4.00 MB/s in, 2.00 MB/s out; at most 32.00 MB/s on node1",
        "nodes: NFS      7.0 requests a second",
        "nodes: disks    0.00 B/s read, 1.00 MB/s written",
        "wasted: 1 of 2 GPUs were never used more than 5 %",
        "  fix: ask for 1, or start a process for each GPU, as torchrun-slurm does",
        "wasted: it had 1.95 GB of memory, and all its steps used 319.87 MB at most",
        "  fix: ask for less: --mem=1G",
    ]


def test_of_a_job_that_wastes_nothing_it_is_said_and_of_a_short_one_nothing_is_judged() -> None:
    busy = {"summary": {"nodes": {"head": {name: {"0": 90, "1": 90} for name in NODE if "utilization" in name}}}}
    (job,) = json.loads(ENDED)["jobs"]
    job["tres"]["allocated"] = [
        {**one, "count": 600} if one["type"] == "mem" else one for one in job["tres"]["allocated"]
    ]
    good = answer(sacct=json.dumps({"jobs": [job]}), figures=json.dumps({**busy, "nodes": {"head": {"cpus": 1}}}))
    assert shown(good)[-1].startswith("none of the three commonest wastes")
    # What was not measured was not judged.
    assert not any(line.startswith("none of") for line in shown({**good, "figures": ""}))

    job["time"]["elapsed"] = 299
    assert shown({**good, "sacct": json.dumps({"jobs": [job]})})[-1].startswith("no advice: ")


@pytest.mark.parametrize(
    ("others", "said"),
    [("9\n8\n8\n9_extern\n11\n", "with 2 other jobs, which the next lines include"), (None, "perhaps with")],
)
def test_nodes_that_others_used_too_are_said_to_be_shared(others: str | None, said: str) -> None:
    assert any(line.startswith("its nodes") and said in line for line in shown(answer(others=others)))


@pytest.mark.parametrize(
    ("more", "watcher", "said"),
    [
        ({"figures": ""}, "", "GPUs and nodes: no machine is in [monitoring]"),
        ({"figures": "", "unreached": "no route"}, "watch", "GPUs and nodes: watch does not answer: no route"),
        ({"figures": '{"problem": "Prometheus: refused"}'}, "head", "head does not answer: Prometheus: refused"),
        ({"figures": '{"summary": {}, "nodes": {}}'}, "head", "GPUs and nodes: Prometheus has nothing"),
        ({"figures": json.dumps({"nodes": {"node1": {"cpus": 1}}})}, "head", "GPUs: Prometheus has nothing"),
        ({"sacct": RUNS}, "head", "its own processors and memory: Slurm tells them when it has ended"),
        ({"sacct": "", "scontrol": SCONTROL, "silent": "storage is disabled"}, "head", "tells nothing: storage is dis"),
    ],
)
def test_what_is_not_known_is_named_and_is_never_0(more: dict[str, Any], watcher: str, said: str) -> None:
    name = "14" if more.get("sacct") == RUNS else "9"
    lines = shown(answer(**more), watcher, name)

    assert any(line.startswith("not known: ") and said in line for line in lines), lines
    if "figures" in more:
        assert "GPUs held 2, use not measured" in [" ".join(line.split()) for line in lines]
        assert not any("0 %" in line for line in lines if line.startswith("GPUs"))
    if "sacct" in more:
        assert any(line.startswith("CPUs") and line.endswith("not measured") for line in lines)


def test_slurm_and_prometheus_are_asked_for_the_jobs_own_time_and_nodes() -> None:
    told = report.asked(ENDED, "", "9")
    assert told["figures"] == ["9", "1795922057", "1795922373", "head"]
    assert told["others"][-3:] == ["--starttime=uts1795922058", "--endtime=uts1795922373", "--nodelist=head"]
    # Of one that runs, up to now.
    assert report.asked(RUNS, "", "14")["figures"][1:3] == ["1795922417", "0"]
    # Nobody is asked about a job that has not begun, or that is none.
    nothing = {"others": [], "figures": []}
    assert (
        report.asked(WAITS, "", "15") == report.asked("", "", "7") == report.asked("no", '{"jobs": 7}', "7") == nothing
    )


def test_a_job_that_slurm_does_not_know_is_named() -> None:
    with pytest.raises(ClusterctlError, match="Slurm knows no job 9") as refused:
        shown(answer(sacct='{"jobs": []}'))
    assert "sacct" in refused.value.fix


@pytest.mark.parametrize("name", ["x", "7;id", "-1", "0", "7_x", "7.batch"])
def test_what_is_no_jobs_number_is_refused_before_any_machine_is_asked(tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(cli, ["job", "-i", str(tmp_path / "none.ini"), "--", name])

    assert done.exit_code == ExitCode.BAD_REQUEST
    assert "is no job's number" in done.output
