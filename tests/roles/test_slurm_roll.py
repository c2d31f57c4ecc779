"""slurmd is replaced on one node first, then on a quarter at a time, and no further where one does not come back."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from provision import content
from provision.ansible_env import clean_environment

HOST = "ansible_connection=local ansible_become=false ansible_python_interpreter={python}"

#: The role's parts that are about a real slurmd: a node that is ``broken`` does not come back.
STUB = {
    "main.yml": "- name: Replace it\n  ansible.builtin.debug:\n",
    "verify_controller.yml": """
- name: Ask
  ansible.builtin.debug:
    msg: "asked about {{ cluster_asked_for.left | join(' ') }}"
""",
    "verify.yml": """
- name: Verify
  ansible.builtin.fail:
    msg: it is DOWN
  when: broken is defined
""",
}
REAL = ("roll.yml", "rolled.yml")
#: The plays of the stage that run slurmd, and those that judge it.
PLAYS = ("Run Slurm on the compute nodes", "Replace slurmd, on one node first", "Judge the nodes whose slurmd")


def rolled(directory: Path, nodes: dict[str, str], *, replaced: list[str]) -> subprocess.CompletedProcess[str]:
    """Run these plays; the observation has found something to do on all nodes, and on some another container."""
    tasks = directory / "roles/slurm_service/tasks"
    tasks.mkdir(parents=True)
    for name, text in STUB.items():
        (tasks / name).write_text("---\n" + text)
    for name in REAL:
        shutil.copy(content.ROOT / "roles/slurm_service/tasks" / name, tasks)
    stage = yaml.safe_load(content.playbook("slurm").read_text())
    plays = [play for play in stage if "hosts" in play and play["name"].startswith(PLAYS)]
    after = {"name": "Go on", "hosts": "all", "gather_facts": False}
    after["tasks"] = [{"name": "Go on", "ansible.builtin.debug": {}}]
    (directory / "slurm.yml").write_text(yaml.safe_dump([*plays, after]))
    python = HOST.format(python=sys.executable)
    lines = ["[slurm_controller]", f"head {python}", "[slurm_compute]"]
    lines += [f"{name} {python} {extra}" for name, extra in nodes.items()]
    lines += ["[pending_slurm_service]", "head", *nodes, "[replaces_slurm_service]", "head", *replaced]
    (directory / "inventory.ini").write_text("\n".join(lines) + "\n")
    environment = {**clean_environment(), "ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "inventory.ini", "slurm.yml"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, env=environment, check=False)


def batches(done: subprocess.CompletedProcess[str], play: str) -> list[list[str]]:
    """Return the nodes whose slurmd each batch of a play has replaced."""
    plays = [text for text in done.stdout.split("PLAY [") if text.startswith(play)]
    begun = [text.split(": Replace it]", 1)[-1].split("TASK [", 1)[0] for text in plays if ": Replace it]" in text]
    return [sorted(re.findall(r"ok: \[(\w+)\]", text)) for text in begun]


NODES = {f"node{number}": "" for number in range(1, 9)}


def test_one_node_goes_first_and_a_quarter_follows_at_a_time(tmp_path: Path) -> None:
    done = rolled(tmp_path, NODES, replaced=list(NODES))

    assert done.returncode == 0, done.stdout
    assert batches(done, "Replace slurmd") == [
        ["node1"], ["node2", "node3"], ["node4", "node5"], ["node6", "node7"], ["node8"]
    ]  # fmt: skip
    assert "asked about node2 node3" in done.stdout
    assert batches(done, "Run Slurm") == []
    assert "WARNING" not in done.stdout + done.stderr


def test_nodes_whose_container_stays_or_is_the_first_wait_for_no_other(tmp_path: Path) -> None:
    done = rolled(tmp_path, NODES, replaced=[])

    assert batches(done, "Run Slurm") == [sorted(NODES)]
    assert batches(done, "Replace slurmd") == []


def test_where_the_first_does_not_come_back_the_others_are_left_and_told_why(tmp_path: Path) -> None:
    done = rolled(tmp_path, {**NODES, "node1": "broken=yes"}, replaced=list(NODES)[:3])

    assert done.returncode == 2
    assert batches(done, "Replace slurmd") == [["node1"]]
    assert "slurm_service.replaced: fail: observed it did not come back, expected" in done.stdout
    left = "slurm_service.replaced: fail: observed slurmd was left as it is, expected a new slurmd"
    assert [name for name in NODES if re.search(rf"\[{name}\].*{left}.*did not come back on node1\.", done.stdout)] == [
        "node2",
        "node3",
    ]
    # The controller and the nodes that got through are not kept from the rest of the stage.
    assert "ok: [head]" in done.stdout.split("TASK [Go on]")[1]


def test_a_node_of_a_later_batch_stops_those_after_its_own(tmp_path: Path) -> None:
    done = rolled(tmp_path, {**NODES, "node3": "broken=yes"}, replaced=list(NODES))

    assert batches(done, "Replace slurmd") == [["node1"], ["node2", "node3"]]
    after = done.stdout.split("TASK [Go on]")[1].split("PLAY RECAP")[0]
    assert sorted(re.findall(r"ok: \[(\w+)\]", after)) == ["head", "node1", "node2"]
