"""What a site gives its users' jobs: wheels and models of a closed network."""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Iterator

import labs
import pytest
import saved_image
import yaml

PLACE = "/home/site"
NAME = "of_the_site"


def wheel(name: str, source: str) -> bytes:
    """Return a wheel of one module, which no public index has. Its format is the one of PyPA's specification."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr(f"{name}.py", f"SAID = 'from the {source} of the site'\n")
        made.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        made.writestr(f"{name}-1.dist-info/WHEEL", tags)
        made.writestr(f"{name}-1.dist-info/RECORD", "")
    return file.getvalue()


def bring(lab: labs.Lab, directory: str, name: str, source: str) -> None:
    """Put a wheel into a directory of the controller."""
    packed = base64.b64encode(wheel(name, source)).decode()
    lab.root("head", f"mkdir -p {directory}; echo {packed} | base64 -d >{directory}/{name}-1-py3-none-any.whl")


@pytest.fixture(scope="module")
def lab(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    """The shared machines with more of job_offline than every day, and as they were afterwards."""
    lab, variables = provisioned_lab, provisioned_lab.directory / "group_vars" / "all.yml"
    given = variables.read_text()
    bring(lab, f"{PLACE}/wheels", NAME, "directory")
    lab.root(
        "head", f"cd {PLACE}; mkdir models sets; echo weights >models/model; echo rows >sets/rows; chmod -R a+rX ."
    )
    offline = {"wheels": f"{PLACE}/wheels", "models": f"{PLACE}/models", "datasets": f"{PLACE}/sets"}
    variables.write_text(yaml.safe_dump({**yaml.safe_load(given), "job_offline": offline}))
    try:
        labs.clusterctl("provision", lab.inventory, "slurm")
        yield lab
    finally:
        variables.write_text(given)
        lab.root("head", f"rm -r {PLACE}")
        lab.said("rm -rf site-of-mine own.slurm")
        labs.clusterctl("provision", lab.inventory, "slurm")


@pytest.mark.night
def test_a_job_has_wheels_and_models_of_the_site_without_the_users_doing(lab: labs.Lab) -> None:
    image = lab.said("srun podman images --quiet --filter readonly=true").split()[0]
    install = f"python3 -m pip install --quiet --disable-pip-version-check --target ~/site-of-mine {NAME}"
    looks = f'import os, sys; sys.path.append(os.path.expanduser("~/site-of-mine")); import {NAME}; print({NAME}.SAID)'
    task = f"{install} && python3 -c '{looks}'; cat $HF_HOME/model; echo offline $HF_HUB_OFFLINE"
    task += "; cat $HF_DATASETS_CACHE/rows; echo offline $HF_DATASETS_OFFLINE"
    lab.said(f"cat >own.slurm <<'END'\n#!/bin/sh\n{task}\nEND\nchmod +x own.slurm")

    inside = lab.said(f"srun --container-image={image} --container-mount-home ./own.slurm")

    assert inside.splitlines() == [
        "from the directory of the site", "weights", "offline 1", "rows", "offline 1"
    ]  # fmt: skip
    # Without a container, where jobs have no pip: its variables.
    assert lab.said("srun sh -c 'echo $PIP_NO_INDEX $PIP_FIND_LINKS; cat $HF_HOME/model'").split() == [
        "1", f"{PLACE}/wheels", "weights"
    ]  # fmt: skip
    # What the user has set stays.
    assert lab.said("HF_HOME=/mine srun printenv HF_HOME") == "/mine"


def test_a_job_is_told_of_the_sites_models_and_its_container_has_them(site_image: labs.Lab) -> None:
    lab = site_image
    lab.root("head", f"mkdir -p {PLACE}/models; echo weights >{PLACE}/models/model; chmod -R a+rX {PLACE}")
    look = "sh -c 'cat $HF_HOME/model; echo $HF_HUB_OFFLINE $TRANSFORMERS_OFFLINE'"
    try:
        told = lab.said(f"srun {look}; srun --container-image={saved_image.NAME} {look}").split()
    finally:
        lab.root("head", f"rm -r {PLACE}")

    assert told == ["weights", "1", "1"] * 2
