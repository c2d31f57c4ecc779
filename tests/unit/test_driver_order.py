"""The order in which the role nvidia_driver works: what can fail without harm first, the node given back last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import driver_machines
import pytest
import yaml
from machines import plugin

from provision import content
from provision.judge import gpu_stage, road

TASKS = content.ROOT / "roles/nvidia_driver/tasks"


def tasks(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the tasks of a file, those of its blocks included, in their order."""

    def flat(entries: Any) -> Iterator[dict[str, Any]]:
        for entry in entries or ():
            yield entry
            for part in ("block", "rescue", "always"):
                yield from flat(entry.get(part))

    yield from flat(yaml.safe_load(path.read_text(encoding="utf-8")))


def position(name: str) -> int:
    return next(place for place, task in enumerate(tasks(TASKS / "change.yml")) if name in str(task))


def test_all_that_an_installation_needs_is_resolved_before_the_drain_and_the_drain_comes_before_the_packages() -> None:
    resolve, drain, install = position("resolve.yml"), position("slurm_node"), position("install.yml")

    assert resolve < drain < install
    # Nothing that is on the machine is changed before it is known that all of it can be installed.
    assert resolve < min(position("repository_key"), position("files.yml"), position("update_cache"))


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The action of a machine whose driver would be changed under a training over ssh; gives what it judges."""
    module = plugin("roles/nvidia_driver/action_plugins/nvidia_driver_state.py")
    machine, case = driver_machines.machine("row01_reload_is_enough", tmp_path)
    told = {"pid": 4711, "name": "python3", "user": "ada", "command": "train.py", "container": "", "slurm": False}
    machine["gpu"]["holders"] = [told]
    monkeypatch.setattr(module.ActionBase, "run", lambda *_, **__: {})
    monkeypatch.setattr(module.ActionModule, "_execute_module", lambda *_, **__: {"machine": machine})
    monkeypatch.setattr(module.ActionModule, "_judged", lambda _, checks, __: {"checks": checks})

    def ask(purpose: str) -> list[str]:
        action = object.__new__(module.ActionModule)
        action._task = SimpleNamespace(args={"purpose": purpose, "wants": driver_machines.wants(case)})
        return [check.id for check in action.run(task_vars={})["checks"] if check.verdict == "fail"]

    return ask


def test_a_training_that_slurm_does_not_know_stops_the_stage(asked: Any) -> None:
    assert asked("plan") == ["nvidia_driver.processes"]


def test_a_training_that_slurm_does_not_know_stops_preflight_before_anything_is_changed(tmp_path: Path) -> None:
    machine, case = driver_machines.machine("row01_reload_is_enough", tmp_path)
    told = {"pid": 4711, "name": "python3", "user": "ada", "command": "train.py", "container": "", "slurm": False}
    machine["gpu"]["holders"] = [told]

    checks = gpu_stage.nvidia_driver(machine, {**driver_machines.wants(case), "compute": True, "kept": False})
    judged = {"preflight": [], "nvidia_driver": checks}

    first, rest = road.before(judged, ["slurm_compute"])
    assert [check.id for check in first if not check.ok] == ["nvidia_driver.processes"]
    assert rest == {"preflight": [], "nvidia_driver": [check for check in checks if check not in first]}


@pytest.mark.parametrize(("kept", "verdict"), [(True, "fail"), (False, "pass"), (None, "unknown")])
def test_a_node_that_an_interrupted_run_keeps_from_slurm_enters_the_stage_again(
    tmp_path: Path, kept: bool | None, verdict: str
) -> None:
    machine, case = driver_machines.machine("row01_reload_is_enough", tmp_path)

    checks = gpu_stage.nvidia_driver(machine, {**driver_machines.wants(case), "compute": True, "kept": kept})

    assert [check.verdict for check in checks if check.id == "nvidia_driver.returned"] == [verdict]
    assert gpu_stage.nvidia_driver({}, {"compute": False, "kept": False}) == []


def test_a_node_that_gets_no_driver_any_more_is_for_its_administrator_to_give_back(tmp_path: Path) -> None:
    machine, case = driver_machines.machine("row01_reload_is_enough", tmp_path)
    wants = {**driver_machines.wants(case), "install": "false", "compute": True, "kept": True}

    (check,) = [one for one in gpu_stage.nvidia_driver(machine, wants) if one.id == "nvidia_driver.returned"]

    assert check.verdict == "warn"
    assert "state=resume" in check.fix


def test_the_controller_says_which_nodes_the_stage_keeps_and_no_others() -> None:
    ours = "clusterctl: nvidia driver"
    text = f"node1|{ours}|{ours}\nnode2|{ours}|disk is full\nnode3|{ours}|{ours}, later\nnode4|{ours}|a|b\nnode5\n"

    assert gpu_stage.drained({"commands": {"drained": {"rc": 0, "text": text}}}) == ["node1"]
    silent = "slurm_load_partitions: Unable to contact slurm controller (connect failure)"
    for code, said in ((None, "did not answer in 15 s"), (124, ""), (1, silent)):
        assert gpu_stage.drained({"commands": {"drained": {"rc": code, "text": said}}}) is None
    for code, said in ((1, "Error response from daemon: No such container: slurmctld"), (127, "docker: not found")):
        assert gpu_stage.drained({"commands": {"drained": {"rc": code, "text": said}}}) == [], "nobody keeps any"
    assert gpu_stage.drained({}) is None
