"""What is built and installed works by itself: outside the checkout, with nothing but its dependencies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ansible_runs
import pytest

from provision import content


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without this interpreter's surroundings; what it printed is the test's error when it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    environment |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment into which the built wheel, and nothing else of ours, was installed; its programs."""
    here = tmp_path_factory.mktemp("wheel")
    # The build requirements are among the development dependencies: an isolated build would fetch them again.
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", here]
    run(*build, content.ROOT, cwd=here)
    (wheel,) = here.glob("*.whl")
    # Ours installs into it: to give it a pip of its own would take as long as all the rest.
    run(sys.executable, "-m", "venv", "--without-pip", here / "venv", cwd=here)
    install = [sys.executable, "-m", "pip", "--python", here / "venv/bin/python", "install", "--quiet", "--no-compile"]
    run(*install, wheel, cwd=here)
    return here / "venv/bin"


def test_an_installed_clusterctl_carries_what_it_needs_and_finds_ansible_beside_it(
    installed: Path, tmp_path: Path
) -> None:
    """``discover`` runs a playbook, a role, a module and a filter; all of them have to come out of the wheel."""
    text = ansible_runs.INVENTORY.replace("node_cpus=4\nnode_real_memory=4000\n", "")
    inventory = ansible_runs.write_inventory(tmp_path, text)
    program = installed / "clusterctl"

    version = run(program, "--version", cwd=tmp_path).stdout
    checked = run(program, "check", inventory, "--json", cwd=tmp_path).stdout
    run(program, "discover", inventory, cwd=tmp_path)
    run(program, "render", inventory, "--output", tmp_path / "rendered", cwd=tmp_path)

    assert version.startswith("clusterctl")
    assert json.loads(checked)["exit_code"] == 0
    assert sorted(path.name for path in (tmp_path / "host_vars").glob("*.yml")) == ["node1.yml", "node2.yml"]
    assert "NodeName=node[1-2] CPUs=" in (tmp_path / "rendered/slurm.conf").read_text(encoding="utf-8")
