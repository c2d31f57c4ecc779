"""What is built and installed works by itself: outside the checkout, with nothing but its dependencies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable
from importlib import metadata
from pathlib import Path

import ansible_runs
import pytest
from packaging.requirements import Requirement

from provision import content


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without this interpreter's surroundings; what it printed is the test's error when it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    environment |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


def needed(requirements: Iterable[str], extras: Collection[str] = ("",)) -> dict[str, metadata.Distribution]:
    """Return what is installed here of these requirements, and of theirs; what is missing or too old is an error."""
    found: dict[str, metadata.Distribution] = {}
    for requirement in map(Requirement, requirements):
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        distribution = metadata.distribution(requirement.name)
        assert requirement.specifier.contains(distribution.version, prereleases=True), str(requirement)
        found[distribution.name] = distribution
        found |= needed(distribution.requires or (), ("", *requirement.extras))
    return found


def share(environment: Path, wheel: Path) -> None:
    """Give an environment what a wheel requires, and nothing else: links to what is installed here."""
    (information,) = metadata.distributions(path=[str(wheel)])
    (packages,) = (environment / "lib").glob("python*/site-packages")
    for distribution in needed(information.requires or ()).values():
        for name in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (packages / name).exists():
                (packages / name).symlink_to(distribution.locate_file(name))
        for file in distribution.files or ():
            if file.parts[-2:-1] == ("bin",) and file.parts[0] == "..":
                program = environment / "bin" / file.name
                text = Path(distribution.locate_file(file)).read_text(encoding="utf-8")
                program.write_text(text.replace(str(Path(sys.executable).parent), str(environment / "bin"), 1))
                program.chmod(0o755)


# What pip would fetch and unpack for twelve seconds is here already, and is linked; at night, pip does it.
@pytest.fixture(scope="module", params=["linked", pytest.param("fetched", marks=pytest.mark.faults)])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the built wheel, what it requires, and nothing else of ours; its programs."""
    here = tmp_path_factory.mktemp("wheel")
    # The build requirements are among the development dependencies: an isolated build would fetch them again.
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", here]
    run(*build, content.ROOT, cwd=here)
    (wheel,) = here.glob("*.whl")
    # Ours installs into it: to give it a pip of its own would take as long as all the rest.
    run(sys.executable, "-m", "venv", "--without-pip", here / "venv", cwd=here)
    install = [sys.executable, "-m", "pip", "--python", here / "venv/bin/python", "install", "--quiet", "--no-compile"]
    if request.param == "linked":
        share(here / "venv", wheel)
        install += ["--no-deps"]
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
