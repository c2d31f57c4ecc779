"""Labs that tests share, as a plugin of pytest. All of them need root and a Docker engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import labs
import pytest
import saved_image
import yaml
from evidence import evidence

from provision import content
from provision.runner import journal

#: Of what a site gives its users, something of each, so that no test of every day has to provision for it.
OF_THE_SITE = {
    # Two processors have four machines and a busy computer to serve.
    "cluster_time_factor": 5,
    # The disk is this computer's.
    "container_images_mirrors": ["node1"],
    "job_offline": {"models": "/home/site/models"},
}

#: The lab that all lanes share which need a provisioned one.
NAME = "t-core"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print beside a failure what the test's labs and this computer were doing."""
    report = yield
    if report.failed:
        found = {lab.name for lab in getattr(item, "funcargs", {}).values() if isinstance(lab, labs.Lab)}
        for name in sorted(found):
            report.sections.append((f"evidence of {name}", evidence(name)))
    return report


@pytest.fixture(scope="session")
def torch_python() -> Path:
    """An interpreter that has PyTorch, of the release that the lab's image gets; made once and kept in the cache."""
    defaults = yaml.safe_load((content.ROOT / "roles/lab_machines/defaults/main.yml").read_text(encoding="utf-8"))
    wanted = [str(word) for word in defaults["lab_machines_packages"]]
    home = labs.cache() / "tests" / f"{'-'.join(wanted)}-{sys.implementation.cache_tag}"
    if not (home / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", *wanted], check=True)
        (home / "complete").touch()
    return home / "bin" / "python"


@pytest.fixture(scope="session")
def small_lab() -> Iterator[labs.Lab]:
    """One controller and one compute machine as ``lab up`` leaves them; nothing of ours is installed on them.

    Tests that use it leave it as they found it.
    """
    with labs.made("t-small", nodes=1, keep=labs.KEEP) as made:
        made.declare({"cluster_time_factor": OF_THE_SITE["cluster_time_factor"]})
        yield made


@pytest.fixture(scope="session")
def new_lab() -> Iterator[labs.Lab]:
    """One controller, two compute machines and one for logins, as ``lab up`` leaves them.

    ``lab up`` is tried twice. Where there is no lab then, no test is to blame: the session ends with exit code 3.
    """
    with labs.removed(NAME, keep=labs.KEEP):
        for last in (False, True):
            try:
                made = labs.up(NAME, nodes=2, logins=1)
                break
            except (AssertionError, subprocess.SubprocessError) as failed:
                if last:
                    pytest.exit(f"INFRASTRUCTURE: there is no lab\n{failed}\n{evidence(NAME)}", returncode=3)
                labs.down(NAME)
        # With fewer than three nodes there is no mirror by itself.
        made.declare(OF_THE_SITE)
        yield made


@pytest.fixture(scope="session")
def first_provision(new_lab: labs.Lab) -> tuple[labs.Lab, str, str]:
    """The lab after its first provision, what that has told in a pipe, and all that its record has.

    A lab that was kept is settled first: no job is left of a test that failed, and no node stays drained.
    """
    if labs.KEEP:
        settle(new_lab)
    told = labs.clusterctl("provision", new_lab.inventory).stderr
    record = max(journal.runs(journal.state_directory(new_lab.inventory)), key=lambda run: run.id)
    return new_lab, told, (record.directory / "ansible.log").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def provisioned_lab(first_provision: tuple[labs.Lab, str, str]) -> labs.Lab:
    """That lab, provisioned with the command line and converged. Tests that use it leave it converged.

    It is this checkout that provisions, here and in each test: who edits it meanwhile has its machines get a mixture.
    """
    return first_provision[0]


def settle(lab: labs.Lab) -> None:
    """End all jobs of a lab that was kept, and give Slurm its nodes back; a provision mends the rest."""
    for machine in lab.machines:
        labs.docker("start", lab.container(machine))
    lab.root("head", "docker start slurmdbd slurmctld", check=False)
    names = ",".join(name for name in lab.machines if name.startswith("node"))
    lab.root("head", "timeout 60 squeue --noheader --format=%A | sort -u | xargs -r scancel --full", check=False)
    lab.root("head", f"timeout 60 scontrol update NodeName={names} State=RESUME", check=False)


@pytest.fixture(scope="module")
def site_image(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    """That lab with a small image of the site on all nodes; afterwards it is as before."""
    lab, variables = provisioned_lab, provisioned_lab.inventory.parent / "group_vars/all.yml"
    given = variables.read_text(encoding="utf-8")
    saved_image.write(lab.inventory.parent)
    image = {"name": saved_image.NAME, "archive": saved_image.ARCHIVE}
    lab.declare({**yaml.safe_load(given), "job_images": [image]})
    try:
        labs.clusterctl("provision", lab.inventory, "slurm")
        yield lab
    finally:
        variables.write_text(given, encoding="utf-8")
        labs.clusterctl("provision", lab.inventory, "slurm")
