"""The order in which the role nvidia_driver works: what can fail without harm first, the node given back last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import driver_machines
import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from machines import plugin

from provision import content
from provision.judge import gpu_stage, road
from provision.nvidia.driver_plan import Plan, Step, StepKind

TASKS = content.ROOT / "roles/nvidia_driver/tasks"


def tasks(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the tasks of a file, those of its blocks included, in their order."""

    def flat(entries: Any) -> Iterator[dict[str, Any]]:
        for entry in entries or ():
            yield entry
            for part in ("block", "rescue", "always"):
                yield from flat(entry.get(part))

    yield from flat(yaml.safe_load(path.read_text(encoding="utf-8")))


def kinds_of(file: str, words: str) -> set[StepKind]:
    """Return the kinds of steps for which a task is run; none of them in check mode, where it says so."""
    (task,) = [task for task in tasks(TASKS / file) if words in str(task)]
    conditions = [task["when"]] if isinstance(task["when"], str) else task["when"]

    def holds(kind: StepKind) -> bool:
        plan = Plan(pending=(Step(kind, "any words"),)).as_dict()
        values = {"__nvidia_driver_state": {"plan": plan}, "ansible_check_mode": False}
        templar = Templar(DataLoader(), variables=values)
        return all(templar.template(trust_as_template(f"{{{{ {one} }}}}")) for one in conditions)

    return {kind for kind in StepKind if holds(kind)}


def position(name: str) -> int:
    return next(place for place, task in enumerate(tasks(TASKS / "change.yml")) if name in str(task))


def test_all_that_an_installation_needs_is_resolved_before_the_drain_and_the_drain_comes_before_the_packages() -> None:
    resolve, drain, install = position("resolve.yml"), position("slurm_node"), position("install.yml")

    assert resolve < drain < install
    # Nothing that is on the machine is changed before it is known that all of it can be installed.
    assert resolve < min(position("repository_key"), position("files.yml"), position("update_cache"))


def test_whatever_is_to_be_installed_is_resolved_first() -> None:
    assert kinds_of("change.yml", "resolve.yml") == {StepKind.INSTALL, StepKind.REPLACE, StepKind.BUILD}


def test_what_only_some_steps_need_is_done_for_these_alone() -> None:
    assert kinds_of("install.yml", "Replace a driver of another version") == {StepKind.REPLACE}
    assert kinds_of("activate.yml", "Keep nouveau away") == {StepKind.INITRAMFS}


def test_nothing_but_the_stages_end_gives_a_node_back() -> None:
    giving = {
        path.relative_to(content.ROOT / "roles").as_posix()
        for path in (content.ROOT / "roles").glob("*/tasks/*.yml")
        for task in tasks(path)
        if task.get("slurm_node", {}).get("state") == "resumed" and not task.get("check_mode")
    }
    named = [path.name for path in TASKS.glob("*.yml") for task in tasks(path) if "return.yml" in str(task)]
    plays = yaml.safe_load(content.playbook("gpu").read_text(encoding="utf-8"))
    ending = [number for number, play in enumerate(plays) if "tasks_from': 'return'" in str(play)]

    assert giving == {"nvidia_driver/tasks/return_node.yml"}
    assert named == []
    assert ending == [len(plays) - 1]


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


def test_the_stage_asks_who_holds_the_gpus_before_anything_is_changed() -> None:
    asking = [task["nvidia_driver_state"]["purpose"] for task in tasks(TASKS / "plan.yml")]
    gpu = [play for play in yaml.safe_load(content.playbook("gpu").read_text(encoding="utf-8")) if "hosts" in play]

    assert asking == ["plan"]
    first = gpu[0]["tasks"][0]["ansible.builtin.import_role"]
    assert (first["name"], first["tasks_from"]) == ("nvidia_driver", "sort")
    assert next(tasks(TASKS / "sort.yml"))["ansible.builtin.import_tasks"] == "plan.yml"


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
