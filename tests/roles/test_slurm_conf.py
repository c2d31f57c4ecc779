"""The role slurm_conf, run by the real ansible-playbook against directories that stand for machines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision.ansible_env import clean_environment
from provision.inventory import loader
from provision.inventory.declared import cluster_from
from provision.slurm.render import render

INVENTORY = """\
[slurm_controller]
head

[slurm_compute]
node2

[slurm_compute:vars]
node_cpus=48
node_real_memory=192000
node_gres=gpu:A40:4

[all:vars]
cluster_name=a40
slurm_conf_parameters={{"MessageTimeout": 30}}
ansible_connection=local
ansible_python_interpreter={python}
slurm_conf_directory={folder}/{{{{ inventory_hostname }}}}
"""


class Site:
    """Three machines, each a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inventory = folder / "inventory.ini"
        self.inventory.write_text(INVENTORY.format(python=sys.executable, folder=folder))
        self.book, self.proof = folder / "play.yml", folder / "proof.yml"
        texts = {"ansible.builtin.import_role": {"name": "slurm_conf", "tasks_from": "texts"}}
        proof = {"observe": {"roles": ["slurm_conf"], "then": "prove"}}
        play = {"hosts": "all", "gather_facts": False}
        self.book.write_text(yaml.safe_dump([{**play, "roles": [{"role": "slurm_conf"}]}]))
        self.proof.write_text(yaml.safe_dump([{**play, "tasks": [texts, proof]}]))

    def play(self, *options: str, book: Path | None = None) -> tuple[int, dict[str, Any]]:
        """Run the role, or another book; return the exit status and Ansible's own account of it."""
        program = str(Path(sys.executable).parent / "ansible-playbook")
        done = subprocess.run(
            [program, "-i", str(self.inventory), str(book or self.book), *options],
            env={**clean_environment(), "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json", "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, json.loads(done.stdout[done.stdout.index("{") :])

    def files(self, host: str) -> dict[str, str]:
        folder = self.folder / host
        return {path.name: path.read_text() for path in sorted(folder.iterdir())} if folder.is_dir() else {}

    def rendered(self) -> dict[str, str]:
        loaded = loader.load(self.inventory)
        return render(cluster_from(loaded.groups, loaded.hostvars))


def changed(told: dict[str, Any]) -> int:
    return sum(stats["changed"] for stats in told["stats"].values())


def failures(told: dict[str, Any]) -> list[dict[str, Any]]:
    results = [result for play in told["plays"] for task in play["tasks"] for result in task["hosts"].values()]
    checks = [check for result in results if result.get("failed") for check in result.get("cluster_checks", [])]
    return [check for check in checks if check["verdict"] in ("fail", "unknown")]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site whose controller alone was written, by a run with a limit."""
    site = Site(tmp_path_factory.mktemp("written"))
    status, _ = site.play("--limit", "head")
    assert status == 0
    return site


def test_the_role_writes_the_very_bytes_that_render_prints_and_a_limit_changes_no_line_of_them(written: Site) -> None:
    assert written.files("head") == written.rendered()


def test_what_was_changed_by_hand_fails_the_proof_by_name_and_a_second_run_changes_that_alone(written: Site) -> None:
    """A file with another text, and a copy on a node, which would win over the controller's."""
    gres, copy = written.folder / "head" / "gres.conf", written.folder / "node2" / "slurm.conf"
    gres.write_text(gres.read_text().replace("nvidia", "nvml"))
    copy.parent.mkdir(exist_ok=True)
    copy.write_text("ClusterName=old\n")
    before = gres.read_bytes(), gres.stat().st_mtime_ns

    status, told = written.play(book=written.proof)

    assert status != 0
    assert {(check["id"], check["observed"], check["verdict"]) for check in failures(told)} == {
        ("slurm_conf.files", f"{gres} has another text", "fail"),
        ("slurm_conf.files", f"{copy} is there", "fail"),
    }
    assert changed(told) == 0
    assert (gres.read_bytes(), gres.stat().st_mtime_ns) == before
    assert copy.exists()

    status, told = written.play()

    # Without the limit of the first run, and yet with nothing to do but this.
    assert (status, changed(told)) == (0, 2)
    assert not copy.exists()
    assert written.files("head") == written.rendered()
    assert written.files("node2") == {}
