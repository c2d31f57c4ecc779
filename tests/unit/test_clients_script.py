"""Trees of Slurm's commands on a machine: which one is put in use, and which ones stay."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from provision import content

SCRIPT = content.ROOT / "roles/slurm_client/files/clients"
CHANGED, UNCHANGED = '{"changed": true}\n', '{"changed": false}\n'
#: Plays the container engine: exports a tree to its last word but one.
DOCKER = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
mkdir -p "$1/bin" && echo "$2" >"$1/bin/squeue"
"""


def clients(tmp_path: Path, *words: str) -> str:
    """Run the script in a directory of trees, and return what it prints."""
    (tmp_path / "trees").mkdir(exist_ok=True)
    engine = tmp_path / "docker"
    engine.write_text(DOCKER)
    engine.chmod(0o755)
    environment = {"DIRECTORY": str(tmp_path / "trees"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", SCRIPT, *words], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_a_tree_stays_while_somebody_runs_a_program_of_it(tmp_path: Path) -> None:
    trees = tmp_path / "trees"
    clients(tmp_path, "install", "image", "old")
    shutil.copy("/bin/sleep", trees / "old/bin/srun")
    running = subprocess.Popen([trees / "old/bin/srun", "60"])
    try:
        assert clients(tmp_path, "install", "image", "next") == CHANGED
        assert sorted(path.name for path in trees.iterdir()) == ["current", "next", "old"]
        assert (trees / "current/bin/squeue").read_text() == f"{trees}/next\n"
        assert clients(tmp_path, "install", "image", "next") == UNCHANGED, "and it is nothing to be done"
    finally:
        running.kill()
        running.wait()

    assert clients(tmp_path, "install", "image", "next") == CHANGED
    assert sorted(path.name for path in trees.iterdir()) == ["current", "next"]


def test_a_tree_that_was_changed_is_exported_again(tmp_path: Path) -> None:
    clients(tmp_path, "install", "image", "next")
    (tmp_path / "trees/next/bin/squeue").write_text("by hand\n")
    assert "broken next\n" in clients(tmp_path, "look")

    assert clients(tmp_path, "install", "image", "next") == CHANGED

    assert clients(tmp_path, "look") == "whole next\ncurrent next\n"
