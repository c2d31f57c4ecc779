"""What is built and installed works by itself: outside the checkout, with nothing but its dependencies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import ansible_runs
import pytest

from provision import content

#: What Ansible reads travels inside the package.
CARRIED = ("ansible.cfg", "playbooks", "roles", "plugins", "inventory")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without this interpreter's surroundings; what it printed is the test's error when it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    environment |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as it is built from this checkout."""
    here = tmp_path_factory.mktemp("wheel")
    # The build requirements are among the development dependencies: an isolated build would fetch them again.
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", here]
    run(*build, content.ROOT, cwd=here)
    (built,) = here.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A fresh environment into which the built wheel, and nothing else of ours, was installed; its programs."""
    here = wheel.parent
    # Ours installs into it: to give it a pip of its own would take as long as all the rest.
    run(sys.executable, "-m", "venv", "--without-pip", here / "venv", cwd=here)
    install = [sys.executable, "-m", "pip", "--python", here / "venv/bin/python", "install", "--quiet", "--no-compile"]
    run(*install, wheel, cwd=here)
    return here / "venv/bin"


def test_the_wheel_has_what_the_checkout_has_and_nothing_else(wheel: Path) -> None:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *CARRIED, "provision"]
    names = subprocess.run(listed, cwd=content.ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    ours = {name for name in names if name and (content.ROOT / name).is_file()}

    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert found == {name if name.startswith("provision/") else f"provision/_content/{name}" for name in ours}


@pytest.mark.slow
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
