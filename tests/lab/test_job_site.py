"""What a site gives its users' jobs: wheels and models of a closed network, and a word about mistakes in scripts."""

from __future__ import annotations

import base64
import io
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import labs
import pytest
import yaml

pytestmark = pytest.mark.jobs

PLACE = "/home/site"
NAME = "of_the_site"
SEED = Path(__file__).parents[1] / "unit/seed_scripts/megatron_docker.slurm"


def wheel() -> bytes:
    """Return a wheel of one module, which no index has. Its format is the one of PyPA's specification."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr(f"{NAME}.py", "SAID = 'from the directory of the site'\n")
        made.writestr(f"{NAME}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1\n")
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        made.writestr(f"{NAME}-1.dist-info/WHEEL", tags)
        made.writestr(f"{NAME}-1.dist-info/RECORD", "")
    return file.getvalue()


@pytest.fixture(scope="module")
def lab(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    """The shared machines with job_offline and job_lint, and as they were afterwards."""
    lab, variables = provisioned_lab, provisioned_lab.directory / "group_vars" / "all.yml"
    given = variables.read_text()
    packed = base64.b64encode(wheel()).decode()
    lab.root(
        "head",
        f"mkdir -p {PLACE}/wheels {PLACE}/models; echo {packed} | base64 -d >{PLACE}/wheels/{NAME}-1-py3-none-any.whl",
    )
    lab.root("head", f"echo weights >{PLACE}/models/model; chmod -R a+rX {PLACE}")
    offline = {"wheels": f"{PLACE}/wheels", "models": f"{PLACE}/models"}
    variables.write_text(given + yaml.safe_dump({"job_lint": True, "job_offline": offline}))
    try:
        labs.clusterctl("provision", lab.inventory, "slurm")
        yield lab
    finally:
        variables.write_text(given)
        lab.root("head", f"rm -r {PLACE}")
        lab.said("rm -rf site-of-mine seed.slurm own.slurm")
        labs.clusterctl("provision", lab.inventory, "slurm")


def test_a_job_has_wheels_and_models_of_the_site_without_the_users_doing(lab: labs.Lab) -> None:
    image = lab.said("srun podman images --quiet --filter readonly=true").split()[0]
    install = f"python3 -m pip install --quiet --disable-pip-version-check --target ~/site-of-mine {NAME}"
    looks = f'import os, sys; sys.path.append(os.path.expanduser("~/site-of-mine")); import {NAME}; print({NAME}.SAID)'
    task = f"{install} && python3 -c '{looks}'; cat $HF_HOME/model; echo offline $HF_HUB_OFFLINE"
    lab.said(f"cat >own.slurm <<'END'\n#!/bin/sh\n{task}\nEND\nchmod +x own.slurm")

    inside = lab.said(f"srun --container-image={image} --container-mount-home ./own.slurm")

    assert inside.splitlines() == ["from the directory of the site", "weights", "offline 1"]
    # Without a container, where jobs have no pip: its variables.
    assert lab.said("srun sh -c 'echo $PIP_NO_INDEX $PIP_FIND_LINKS; cat $HF_HOME/model'").split() == [
        "1", f"{PLACE}/wheels", "weights"
    ]  # fmt: skip
    # What the user has set stays.
    assert lab.said("HF_HOME=/mine srun printenv HF_HOME") == "/mine"


def submitted(lab: labs.Lab, words: str, machine: str = "login1") -> tuple[list[str], float]:
    """Return what sbatch said besides the job's number, and how many seconds it took; nothing of the job is left."""
    begun = time.monotonic()
    done = lab.ssh(machine, f"sbatch --parsable --hold {words}", user="ada")
    taken = time.monotonic() - begun
    assert done.returncode == 0, done.stderr
    assert lab.ssh(machine, f"scancel {done.stdout.strip()}", user="ada").returncode == 0
    return done.stderr.splitlines(), taken


def test_sbatch_says_which_mistakes_are_in_a_script_and_submits_it(lab: labs.Lab) -> None:
    lines = [
        line for line in SEED.read_text().splitlines() if not line.startswith(("#SBATCH --partition", "#SBATCH --ex"))
    ]
    sizes = {"gpu:8": "gpu:2", "=64 ": "=1 ", "1000G": "500M"}
    text = "\n".join(lines)
    for old, new in sizes.items():
        text = text.replace(old, new)
    lab.said(f"cat >seed.slurm <<'OF-THE-SEED'\n{text}\nOF-THE-SEED")

    told, _ = submitted(lab, "seed.slurm")

    assert len(told) > 3
    assert told[0].startswith("lint-job: seed.slurm:")
    assert all(line.startswith("lint-job: ") for line in told), told
    assert told[-1].startswith("lint-job: the job is submitted all the same")
    # A good one is submitted without a word; from within a job, too.
    assert submitted(lab, "--wrap=hostname")[0] == []
    assert "seed.slurm" in lab.said("srun sh -c 'sbatch --hold --parsable seed.slurm 2>&1'")
    lab.said("scancel --me")


@pytest.mark.parametrize("program", ["#!/bin/sh\nexec sleep 60", "#!/nonexistent"], ids=["sleeps", "cannot run"])
def test_nobody_waits_for_what_looks_for_mistakes(lab: labs.Lab, program: str) -> None:
    file = lab.root("login1", "ls /opt/clusterctl/slurm/*/lint-job/lint-job").split()[-1]
    lab.said("printf '#!/bin/sh\\nhostname\\n' >own.slurm")
    _, before = submitted(lab, "own.slurm")
    lab.root("login1", f"mv {file} {file}.kept; printf '%s\\n' '{program}' >{file}; chmod 755 {file}")
    try:
        told, taken = submitted(lab, "own.slurm")
    finally:
        lab.root("login1", f"mv {file}.kept {file}")

    assert told == []
    # A second is what it is given; the rest is what a busy computer may add.
    assert taken < before + 10
