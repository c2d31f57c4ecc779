"""Limits: a run ends, and what is asked of a machine says where it is declared how long it may take."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision import content
from provision.runner.limits import STAGES, START, Deadline, seconds_for

VERIFYING = sorted(
    path
    for pattern in ("verify*.yml", "status.yml", "job.yml", "ask.yml", "transfers.yml")
    for path in (content.ROOT / "roles").glob(f"*/tasks/{pattern}")
)

#: Actions that run on the control node and ask no machine.
LOCAL = {
    *("cluster_check", "cluster_report", "hardware_record", "set_fact", "assert", "fail", "debug"),
    *("munge_compared", "rdma_userspace_compared", "slurm_jobs_planned", "ddp_planned", "ddp_judged"),
    *("import_tasks", "include_tasks", "import_role", "include_role"),
}

#: What a task says beside its action.
KEYWORDS = {
    *("name", "register", "when", "loop", "loop_control", "vars", "changed_when", "failed_when", "delegate_to", "tags"),
    *("run_once", "no_log", "until", "retries", "delay", "check_mode", "timeout", "become", "environment", "async"),
    *("delegate_facts", "block", "rescue", "always", "poll"),
}


#: Numbers of this kind that no slow machine makes wrong.
NOT_BY_SPEED = {
    "base_system_clock_warn_seconds": "a difference between clocks",
    "base_system_clock_fail_seconds": "a difference between clocks",
    "cluster_clock_warn_seconds": "a difference between clocks",
    "cluster_clock_fail_seconds": "a difference between clocks",
    "preflight_clock_warn_seconds": "a difference between clocks",
    "preflight_clock_fail_seconds": "a difference between clocks",
    "lab_machines_start_timeout": "it knows which machines are emulated",
    "nvidia_driver_drain_timeout": "users' jobs end when they end",
    "nvidia_mig_drain_timeout": "the same",
    "rdma_userspace_bandwidth_seconds": "a measurement's length, not a wait",
}


class Clock:
    """A clock that a test turns."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_stage_that_takes_longer_than_its_limit_ends_the_run() -> None:
    clock = Clock()
    deadline = Deadline(["munge", "verify"], machines=2, clock=clock)
    clock.now = 100.0
    assert deadline.reached("munge") == ""
    clock.now += seconds_for("munge", 2) + 1

    assert deadline.reached("munge") == "the limit of 920 s for the stage munge was reached, so the run was stopped"


def test_a_run_whose_stages_never_begin_ends_when_all_of_them_should_have_been_through() -> None:
    clock = Clock()
    deadline = Deadline(["munge", "verify"], machines=2, clock=clock)
    clock.now = float(START + seconds_for("munge", 2) + seconds_for("verify", 2))
    assert deadline.reached("") == ""
    clock.now += 1

    assert deadline.reached("") == "the run's limit of 3960 s was reached, so it was stopped"


def test_emulated_machines_have_more_time_but_not_for_ever() -> None:
    assert seconds_for("verify", 3, factor=5) == 5 * seconds_for("verify", 3)
    assert seconds_for("verify", 3, factor=10**9) == 100 * seconds_for("verify", 3)
    assert seconds_for("verify", 3, factor=-1) == seconds_for("verify", 3)


def test_every_limit_that_slow_machines_could_reach_reads_the_time_factor() -> None:
    limits = {
        name: str(value)
        for path in content.ROOT.glob("roles/*/defaults/main.yml")
        for name, value in (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).items()
        if re.search(r"_(timeout|seconds|limit|wait)$", name)
    }
    fixed = {name for name, value in limits.items() if not re.search(r"\d+ \* cluster_time_factor \|", value)}

    assert len(limits) > 20
    assert fixed == NOT_BY_SPEED.keys()


def test_every_stage_has_a_limit() -> None:
    assert set(content.stages()) <= set(STAGES)


def test_no_task_is_without_any_limit() -> None:
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(content.ROOT / "ansible.cfg")

    assert 0 < settings.getint("defaults", "task_timeout") <= 7200


def test_a_machine_whose_sshd_is_stopped_is_gone_within_half_a_minute() -> None:
    text = (content.ROOT / "ansible.cfg").read_text(encoding="utf-8")
    interval, count = (int(n) for n in re.findall(r"ServerAlive(?:Interval|CountMax)=(\d+)", text))

    assert interval * count <= 30


def tasks_in(entries: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for entry in entries or []:
        found.append(entry)
        for part in ("block", "rescue", "always"):
            found += tasks_in(entry.get(part))
    return found


@pytest.mark.parametrize("path", VERIFYING, ids=lambda path: f"{path.parent.parent.name}/{path.stem}")
def test_every_question_of_a_proof_says_how_long_it_waits(path: Path) -> None:
    for task in tasks_in(yaml.safe_load(path.read_text(encoding="utf-8"))):
        actions = {key.rpartition(".")[2] for key in task if key not in KEYWORDS}
        if actions - LOCAL:
            assert "timeout" in task, f"{task.get('name')}: no limit"


@pytest.mark.parametrize("name", ["discover", "observe", "preflight", "prove", "status", "verify"])
def test_every_play_that_only_asks_has_a_limit_for_its_tasks(name: str) -> None:
    for play in yaml.safe_load(content.playbook(name).read_text(encoding="utf-8")):
        if "hosts" in play:
            assert play.get("timeout") == 300, play["name"]
