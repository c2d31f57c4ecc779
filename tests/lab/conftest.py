"""Machines that the tests in this directory share. All of them need root and a Docker engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import labs
import pytest
import saved_image
import yaml

from provision import content
from provision.runner import journal

HERE = Path(__file__).parent

#: Of what a site gives its users, something of each, so that no test of every day has to provision for it.
OF_THE_SITE = {
    # The disk is this computer's.
    "container_images_mirrors": ["node1"],
    "container_images_users": True,
    "container_images_users_free": 2,
    "job_offline": {"models": "/home/site/models"},
    "job_lint": True,
}

#: What the provision of ``provisioned_lab`` has told in a pipe, and all that its record has.
FIRST_PROVISION: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this directory needs machines."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.lab)


#: What slurmctld said last, and in what its threads wait: the lab is gone when somebody reads of a failure.
EVIDENCE = """
timeout 20 journalctl --no-pager --output cat --identifier slurmctld --lines 40
for thread in $(pgrep -f '^slurmctld --systemd' | sed 's,.*,/proc/&/task/*,'); do
    echo "$thread: $(cat $thread/comm) in $(cat $thread/wchan), $(cut -d ' ' -f 1 $thread/syscall)"
done
"""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print beside a failure what the lab's slurmctld was at."""
    report = yield
    lab = getattr(item, "funcargs", {}).get("provisioned_lab")
    if report.failed and lab is not None:
        report.sections.append((f"slurmctld on {lab.name}", lab.root("head", EVIDENCE, check=False)))
    return report


@pytest.fixture(scope="session")
def torch_python() -> Path:
    """An interpreter that has PyTorch, of the release that the lab's image gets; made once and kept in the cache."""
    defaults = yaml.safe_load((content.ROOT / "roles/lab_machines/defaults/main.yml").read_text(encoding="utf-8"))
    wanted = [str(word) for word in defaults["lab_machines_wheels"]]
    home = labs.cache() / "tests" / f"{'-'.join(wanted)}-{sys.implementation.cache_tag}"
    if not (home / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        downloaded = labs.cache() / "wheels"
        wheels = ["--find-links", str(downloaded)] if downloaded.is_dir() else []
        subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", *wheels, *wanted], check=True)
        (home / "complete").touch()
    return home / "bin" / "python"


@pytest.fixture(scope="session")
def small_lab() -> Iterator[labs.Lab]:
    """One controller and one compute machine as ``lab up`` leaves them; nothing of ours is installed on them.

    Tests that use it leave it as they found it.
    """
    with labs.made("t-small", nodes=1) as made:
        yield made


@pytest.fixture(scope="session")
def provisioned_lab() -> Iterator[labs.Lab]:
    """One controller, two compute machines and one for logins, provisioned with the command line and converged.

    Tests that use it leave it converged. It is this checkout that provisions, here and in each test: who edits it
    meanwhile has its machines get a mixture. Each of pytest's workers has one of its own.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    with labs.made(f"t-main{worker}", nodes=2, logins=1) as made:
        # With fewer than three nodes there is none by itself.
        (made.inventory.parent / "group_vars").mkdir(exist_ok=True)
        (made.inventory.parent / "group_vars/all.yml").write_text(yaml.safe_dump(OF_THE_SITE), encoding="utf-8")
        told = labs.clusterctl("provision", made.inventory).stderr
        record = max(journal.runs(journal.state_directory(made.inventory)), key=lambda run: run.id)
        FIRST_PROVISION.extend((told, (record.directory / "ansible.log").read_text(encoding="utf-8")))
        yield made


@pytest.fixture(scope="module")
def site_image(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    """That lab with a small image of the site on all nodes; afterwards it is as before."""
    lab, variables = provisioned_lab, provisioned_lab.inventory.parent / "group_vars/all.yml"
    given = variables.read_text(encoding="utf-8")
    saved_image.write(lab.inventory.parent)
    image = {"name": saved_image.NAME, "archive": saved_image.ARCHIVE}
    variables.write_text(yaml.safe_dump({**yaml.safe_load(given), "job_images": [image]}), encoding="utf-8")
    try:
        labs.clusterctl("provision", lab.inventory, "slurm")
        yield lab
    finally:
        variables.write_text(given, encoding="utf-8")
        labs.clusterctl("provision", lab.inventory, "slurm")


@pytest.fixture
def first_provision(provisioned_lab: labs.Lab) -> tuple[str, str]:
    """Return what the provision of that lab has told in a pipe, and all that its record has.

    A lab that was kept has nothing to move.
    """
    told, record = FIRST_PROVISION
    if re.search(r"(?m)^node1 .* changed=0 ", record):
        pytest.skip(f"{provisioned_lab.name} was there before")
    return told, record
