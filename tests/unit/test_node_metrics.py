"""What is told of adapters and trainings: the driver's own counters, and no name of a user's choice."""

from __future__ import annotations

import os
from pathlib import Path

from test_gpu_metrics import program

metrics = program("node-metrics")


def test_counters_of_congestion_are_told_by_the_drivers_names(tmp_path: Path) -> None:
    # drivers/infiniband/hw/mlx5/counters.c; lifespan: Documentation/ABI/stable/sysfs-class-infiniband.
    counters = tmp_path / "mlx5_0/ports/1/hw_counters"
    counters.mkdir(parents=True)
    told = {
        "np_cnp_sent": "12\n",
        "rp_cnp_handled": "3\n",
        "out_of_sequence": "7\n",
        "lifespan": "10\n",
        "bad": "N/A\n",
    }
    for name, text in told.items():
        (counters / name).write_text(text, encoding="ascii")
    (tmp_path / "irdma0/ports/1").mkdir(parents=True)

    found = list(metrics.of_adapters(tmp_path))

    assert {name for name, _, _ in found} == {"clusterctl_rdma_hw_counter_total"}
    assert {labels["counter"]: value for _, labels, value in found} == {
        "np_cnp_sent": 12, "rp_cnp_handled": 3, "out_of_sequence": 7,
    }  # fmt: skip
    assert {(labels["device"], labels["port"]) for _, labels, _ in found} == {("mlx5_0", "1")}
    assert list(metrics.of_adapters(tmp_path / "none")) == []


def job(jobs: Path, number: str, text: str) -> Path:
    (jobs / number).mkdir()
    (jobs / number / "training").write_text(text, encoding="utf-8")
    return jobs / number / "training"


def test_a_training_tells_its_step_speed_and_loss_and_nothing_else(tmp_path: Path) -> None:
    job(tmp_path, "7", 'step=12\nsamples_per_second=345.5\nloss=0.25\nslurm_up=0\nnode_load1{x="y"}=3\n')
    job(tmp_path, "8", "step=many\nloss=nan\nsamples_per_second=1e999\n")
    job(tmp_path, "9", "x" * 10_000 + "\nstep=3\n")
    job(tmp_path, "10", "step=3\nloss")
    (tmp_path / "11").symlink_to("7")
    (tmp_path / "12").mkdir()

    found = list(metrics.of_trainings(tmp_path))

    assert found == [
        ("clusterctl_training_step", {"jobid": "10"}, 3),
        ("clusterctl_training_step", {"jobid": "7"}, 12),
        ("clusterctl_training_samples_per_second", {"jobid": "7"}, 345.5),
        ("clusterctl_training_loss", {"jobid": "7"}, 0.25),
    ]


def test_no_file_but_the_jobs_own_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("step=1\n", encoding="utf-8")
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    for number, make in (("1", lambda path: path.symlink_to(secret)), ("2", os.mkfifo), ("3", Path.mkdir)):
        (jobs / number).mkdir()
        make(jobs / number / "training")

    assert list(metrics.of_trainings(jobs)) == []
