"""The files as text: what slurm.conf's own syntax needs, and the examples as goldens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from declare import A40, cluster

from provision import content
from provision.inventory import loader
from provision.inventory.declared import cluster_from
from provision.slurm.render import render

GOLDEN = Path(__file__).parents[1] / "roles" / "golden"


@pytest.mark.parametrize("name", ["slurm.conf", "gres.conf", "cgroup.conf", "job_container.conf", "plugstack.conf"])
def test_the_two_node_a40_example_renders_to_its_golden(name: str) -> None:
    declared = loader.load(content.ROOT / "inventory" / "a40")

    rendered = render(cluster_from(declared.groups, declared.hostvars))

    assert rendered[name] == (GOLDEN / "a40" / f"{name}.golden").read_text()


def test_the_labs_example_is_complete_but_for_its_hardware() -> None:
    declared = loader.load(content.ROOT / "inventory" / "lab")

    lab = cluster_from(declared.groups, declared.hostvars)

    assert set(lab.undeclared) == {"node1", "node2"}
    assert lab.simulated == ("gpu",)


def test_every_line_is_a_comment_or_key_and_value() -> None:
    for name, text in render(cluster(slurm_conf_parameters={"MessageTimeout": 30})).items():
        if not name.endswith(".conf"):
            continue  # a program
        assert text.endswith("\n"), name
        assert not text.endswith("\n\n"), name
        for line in text.splitlines():
            words = [] if line.startswith("#") or name == "plugstack.conf" else line.split(" ")
            assert line == "" or all("=" in word for word in words), f"{name}: {line}"


def test_a_files_text_depends_on_the_inventory_alone(tmp_path: Path) -> None:
    texts = []
    for seed, zone, user in (("1", "UTC", "anna"), ("2", "Asia/Tokyo", "bert")):
        output = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "USER": user, "HOME": str(tmp_path / user)}
        words = ["render", str(content.ROOT / "inventory/a40/inventory.ini"), "--output", str(output)]
        subprocess.run([sys.executable, "-m", "provision.cli.main", *words], check=True, env=environment)
        texts.append({path.name: path.read_text(encoding="utf-8") for path in output.iterdir()})

    # Neither the date nor the order of a set, nor the user, directory or time zone it was made in.
    assert len(texts[0]) >= 3
    assert texts[0] == texts[1]
    assert not any(re.search(r"\b20[2-9][0-9]-", text) for text in texts[0].values())


def test_a_node_more_changes_its_lines_and_no_other() -> None:
    small = render(cluster({"node1": A40, "node2": A40}))
    large = render(cluster({"node1": A40, "node2": A40, "node3": A40}))

    for name in small:
        differing = [
            (old, new)
            for old, new in zip(small[name].splitlines(), large[name].splitlines(), strict=True)
            if old != new
        ]
        assert all(new == old.replace("node[1-2]", "node[1-3]") for old, new in differing), name
