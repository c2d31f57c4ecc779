"""The scripts that ask Slurm: a daemon that is known to hang is waited for by nobody once more."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from provision import content
from provision.judge.slurm_facts import Facts

FILES = content.ROOT / "roles" / "slurm_service" / "files"
INSPECTED = (
    '[{"Name": "/slurmd", "State": {"Status": "running", "Running": true, "Paused": false, "Restarting": false,'
    ' "Dead": false}, "Config": {"Image": "i"}}]'
)


def asked(tmp_path: Path, script: str, *words: str) -> tuple[str, str]:
    """Return what a script prints, and which programs it has called; ``docker`` and ``munge`` only note that."""
    programs = tmp_path / "bin"
    programs.mkdir()
    log = tmp_path / "log"
    for name, answer in (("docker", f"case $* in *inspect*) echo '{INSPECTED}' ;; esac"), ("munge", ":")):
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n{answer}\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-s", *words],
        input=(FILES / script).read_text(encoding="utf-8"),
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout, log.read_text(encoding="utf-8") if log.exists() else ""


@pytest.mark.parametrize(
    ("silent", "told", "untold"),
    [
        ("-", ("container inspect", "munge --no-input", "scontrol show slurmd", "scontrol ping", "slurmd -G"), ()),
        ("dockerd", (), ("docker", "munge")),
        ("munged", ("container inspect",), ("munge", "scontrol", "slurmd -G")),
        ("slurmctld", ("scontrol show slurmd", "slurmd -G"), ("scontrol ping",)),
        ("munged,slurmctld", ("container inspect",), ("munge", "scontrol")),
    ],
)
def test_a_machine_is_not_asked_what_needs_a_daemon_that_hangs(
    tmp_path: Path, silent: str, told: tuple[str, ...], untold: tuple[str, ...]
) -> None:
    printed, log = asked(tmp_path, "ask-machine", "10", "no", silent, "slurmd")

    assert [word for word in told if word not in log] == []
    assert [word for word in untold if word in log] == []
    facts = Facts.of(printed, "", "")
    assert facts.engine_silent == ("the container engine did not answer in time" if silent == "dockerd" else "")
    assert facts.munge_broken == ("munged did not answer in time" if "munged" in silent else "")


def test_a_controller_is_asked_for_munge_too(tmp_path: Path) -> None:
    _, log = asked(tmp_path, "ask-machine", "10", "no", "-", "slurmctld")

    assert log.splitlines() == ["docker container inspect slurmctld", "munge --no-input"]


def test_slurmctld_is_not_asked_while_what_it_needs_hangs(tmp_path: Path) -> None:
    printed, log = asked(tmp_path, "ask-controller", "10", "/etc/slurm", "munged", "nodes", "files")

    assert log == ""
    assert Facts.of("", printed, "").silent == "slurmctld could not be asked: munged did not answer on the controller"


def test_slurmctld_is_asked_in_the_order_of_the_questions(tmp_path: Path) -> None:
    _, log = asked(tmp_path, "ask-controller", "10", "/etc/slurm", "-", "nodes", "partitions")

    assert [line.rpartition("show ")[2] for line in log.splitlines()] == ["nodes --json", "partitions --json"]
