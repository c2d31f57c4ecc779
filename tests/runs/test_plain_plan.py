"""``ansible-playbook --check --diff`` tells what ``clusterctl plan`` tells: failing checks, and how files differ."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ansible_runs import PLAY, write_inventory
from test_observe import DROP_IN, GOOD, MASKED, OBSERVED, REPLAY
from waiting import PATIENCE

from provision import content
from provision.ansible_env import clean_environment

OLD = {**GOOD, "state": {**GOOD["state"], "paths": {**GOOD["state"]["paths"], DROP_IN: {
    **GOOD["state"]["paths"][DROP_IN], "sha256": "0" * 64, "text": "[Service]\n"}}}}  # fmt: skip


def planned(directory: Path, *words: str, **answers: dict[str, Any]) -> str:
    """Return what a run over machines with these answers prints, a good one where none is given."""
    playbooks = directory / "playbooks"
    (playbooks / "library").mkdir(parents=True)
    (playbooks / "library/machine_facts.py").write_text(REPLAY.format(place=str(directory)), encoding="utf-8")
    shutil.copytree(content.ROOT / "playbooks" / "callback_plugins", playbooks / "callback_plugins")
    for host in ("head", "node1", "node2"):
        (directory / f"{host}.json").write_text(json.dumps([answers.get(host, GOOD)]), encoding="utf-8")
    first = PLAY.format(name="Observe the controller", hosts="slurm_controller") + OBSERVED
    others = PLAY.format(name="Observe the machines", hosts="slurm_compute") + OBSERVED
    (playbooks / "munge.yml").write_text(first + others, encoding="utf-8")
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [str(program), "-i", str(write_inventory(directory)), str(playbooks / "munge.yml"), *words],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    return done.stdout.partition("PLAY RECAP")[2]


def test_check_mode_ends_with_the_plan(tmp_path: Path) -> None:
    told = planned(tmp_path, "--check", "--diff", node1=OLD, node2=MASKED)

    (files,) = [line for line in told.splitlines() if "munge.files" in line]
    assert files.split()[:2] == ["munge", "node1"]
    assert f"{DROP_IN} has another text" in files
    assert "munge  node2  munge.services: munge is masked" in told
    assert told.count(f"node1: {DROP_IN}\n") == 1
    assert "\n+[Unit]\n" in told
    assert "nothing would change" not in told
