"""What job_images_logins may say; whatever it says, no password is in a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from declare import cluster, inventory
from test_job_images_declared import INI

from provision.errors import ClusterctlError
from provision.inventory import loader
from provision.inventory.declared import cluster_from
from provision.inventory.valid import declared

HOST = "harbor.site.example"
IMAGES = [{"name": "a", "reference": f"{HOST}/ai/a:1"}]
GOOD = {"username": "robot", "password": "hunter2"}

#: Values that are refused, each with a word of the refusal.
BAD: list[tuple[Any, str]] = [
    (["robot:hunter2"], "it must map registries to logins"),
    ({HOST: "robot:hunter2"}, f"{HOST}: it must be a mapping with username and password"),
    ({HOST: ["robot", "hunter2"]}, "it must be a mapping with"),
    ({HOST: {"username": "robot"}}, f"{HOST}: it has no password"),
    ({HOST: {"username": "robot", "passwort": "hunter2"}}, "and no other name did you mean password?"),
    ({HOST: {**GOOD, "hunter2": ""}}, "and no other name write it as"),
    ({HOST: {**GOOD, "password": ""}}, "password is empty"),
    ({HOST: {**GOOD, "password": 1234}}, "password must be a text put it in quotes"),
    ({HOST: {**GOOD, "username": "robot:hunter2"}}, "username has a colon"),
    ({f"https://{HOST}/": GOOD}, "written without https://"),
    ({f"robot:hunter2@{HOST}": GOOD}, "it must be one such as"),
    ({f"{HOST}/a": GOOD}, f"{HOST}/a: no image of job_images comes from there did you mean {HOST}/ai?"),
    ({5000: GOOD}, "it must be a text"),
    ({f"{HOST}:99999": GOOD}, "its port is not from 1 to 65535"),
    ({"harbor.site.exampel": GOOD}, f"no image of job_images comes from there did you mean {HOST}?"),
]


def refuse(value: Any, images: Any = IMAGES) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as refused:
        cluster(job_images=images, job_images_logins=value)
    return refused.value


@pytest.mark.parametrize(("value", "words"), BAD)
def test_what_no_registry_could_be_shown_is_refused_without_a_word_of_the_password(value: Any, words: str) -> None:
    error = refuse(value)

    assert words in f"{error.problem} {error.fix}"
    assert error.problem.startswith("job_images_logins: ")
    for secret in ("hunter2", "1234"):
        assert secret not in f"{error.problem} {error.fix}"


def test_they_are_the_controllers() -> None:
    groups, hostvars = inventory(job_images=IMAGES)
    hostvars["node1"]["job_images_logins"] = {HOST: None}

    cluster_from(groups, hostvars)


ALL = f"""---
job_images:
  - {{name: a, reference: {HOST}/a:1}}
  - {{name: b, reference: head:5000/b:1}}
job_images_logins:
  {HOST}:
    username: robot
    password: %s
  head:5000: %s
"""


def in_inventory(place: Path, first: str, second: str) -> None:
    (place / "inventory.ini").write_text(INI)
    (place / "group_vars").mkdir(exist_ok=True)
    (place / "group_vars" / "all.yml").write_text(ALL % (first, second))
    declared(loader.load(place / "inventory.ini"))


def test_a_password_of_ansible_vault_is_not_taken_for_none(tmp_path: Path) -> None:
    encrypted = "!vault |\n      $ANSIBLE_VAULT;1.1;AES256\n      6162"

    in_inventory(tmp_path, encrypted, "{username: a, password: b}")


def test_of_a_project_docker_knows_no_login_and_a_containerfiles_base_is_fetched_by_docker(tmp_path: Path) -> None:
    (tmp_path / "Containerfile").write_text("FROM harbor.site.example/ai/base:1\n")
    images = [{"name": "b", "containerfile": str(tmp_path / "Containerfile")}]

    cluster(job_images=images, job_images_logins={HOST: GOOD})
    error = refuse({f"{HOST}/ai": GOOD}, images)
    assert "a Containerfile's base has the registry's login" in error.problem
    assert error.fix == f"write {HOST}, where a base comes from there"
    cluster(job_images=[*images, *IMAGES], job_images_logins={f"{HOST}/ai": GOOD})
