"""Which image of which recipe the controller has, without building: what it remembers, and what the registry says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import plugin

from provision.judge import images, road
from provision.model.checks import Subject, Verdict
from provision.model.facts import facts_from

registry = plugin("plugins/module_utils/image_registry.py", "ansible.module_utils.image_registry")
recipe = plugin("plugins/module_utils/image_recipe.py", "ansible.module_utils.image_recipe")

DIGEST = f"sha256:{'a' * 64}"
SUBJECT = Subject("slurm_image", ("by_digest",))


@pytest.fixture
def params(tmp_path: Path) -> dict[str, Any]:
    return {
        "name": "slurm",
        "suite": "trixie",
        "files": {"Dockerfile": "FROM x\n"},
        "arguments": {"SLURM_VERSION": "24.11"},
        "revision": 1,
        "push": "head:5001/clusterctl",
        "pull": "head:5000/clusterctl",
        "cache": str(tmp_path),
    }


def remember(params: dict[str, Any], text: str | None = None) -> None:
    record = recipe.Remembered(params).record
    record.parent.mkdir(exist_ok=True)
    record.write_text(json.dumps({"digest": DIGEST}) if text is None else text)


def answered(params: dict[str, Any], has: Any) -> dict[str, str]:
    found: dict[str, str] = recipe.state(params, has)
    return found


def judged(answer: Any) -> Any:
    facts = facts_from({"images": {"slurm": answer}} if answer else {})
    return images.image(SUBJECT, "by_digest", facts, "slurm", "slurm_image")


def silent(*_: Any) -> bool:
    raise registry.RegistryError("the registry head:5000 does not answer: refused")


def test_an_image_that_was_built_and_is_in_the_registry_passes_with_its_digest(params: dict[str, Any]) -> None:
    remember(params)

    answer = answered(params, lambda name, digest: (name, digest) == ("head:5000/clusterctl/slurm", DIGEST))

    assert answer == {"reference": f"head:5000/clusterctl/slurm@{DIGEST}", "problem": ""}
    assert judged(answer).verdict is Verdict.PASS


@pytest.mark.parametrize("record", ["", "[]", "{}", '"x"'])
def test_a_recipe_of_which_nothing_is_remembered_is_not_built(params: dict[str, Any], record: str) -> None:
    remember(params, record)

    answer = answered(params, lambda *_: True)

    assert answer == {"reference": "", "problem": "not built"}
    assert judged(answer).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "other", [{"revision": 2}, {"files": {"Dockerfile": "FROM y\n"}}, {"suite": "bookworm"}, {"push": "site/x"}]
)
def test_another_recipe_or_registry_is_another_image(params: dict[str, Any], other: dict[str, Any]) -> None:
    remember(params)

    assert answered({**params, **other}, lambda *_: True)["problem"] == "not built"


def test_an_image_that_the_registry_lost_has_no_reference_so_that_it_is_built_and_nodes_wait_for_it(
    params: dict[str, Any],
) -> None:
    remember(params)

    answer = answered(params, lambda *_: False)

    assert answer == {"reference": "", "problem": "the registry lost it"}
    assert judged(answer).verdict is Verdict.FAIL


def test_a_registry_that_is_silent_is_not_the_images_failure(params: dict[str, Any]) -> None:
    remember(params)

    answer = answered(params, silent)
    check = judged(answer)

    assert answer["reference"].endswith(DIGEST)
    assert (check.verdict, check.unproven) == (Verdict.SKIP, True)
    assert "refused" in check.observed


def test_a_directory_that_is_missing_is_said(params: dict[str, Any]) -> None:
    answer = answered({**params, "directories": {"wheels": "/nowhere"}}, lambda *_: True)

    assert "/nowhere" in answer["problem"]
    assert judged(answer).verdict is Verdict.FAIL


def test_without_an_answer_nothing_is_known_of_the_image() -> None:
    assert judged(None).verdict is Verdict.UNKNOWN


def test_who_asks_with_hashes_and_who_builds_from_texts_mean_the_same_image(params: dict[str, Any]) -> None:
    asks = plugin("roles/container_images/filter_plugins/container_images.py").container_images_asked
    params["files"]["profile"] = "PS1='é'\n"

    asked = asks(params)

    assert "files" not in asked
    assert "FROM" not in json.dumps(asked)
    assert recipe.recipe_of(asked) == recipe.recipe_of(params)
    changed = {**params, "files": {**params["files"], "profile": "PS1='e'\n"}}
    assert recipe.recipe_of(asks(changed)) == recipe.recipe_of(changed) != recipe.recipe_of(params)
    moved = {**params, "files": {"Containerfile": "FROM x\n", "profile": "PS1='é'\n"}}
    assert recipe.recipe_of(asks(moved)) != recipe.recipe_of(params)


def test_files_in_directories_count_by_name_and_size(params: dict[str, Any], tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "a.whl").write_text("1")
    params["directories"] = {"wheels": str(wheels)}
    before = recipe.recipe_of(params)
    (wheels / ".hidden").write_text("x")
    assert recipe.recipe_of(params) == before
    (wheels / "a.whl").write_text("12")
    assert recipe.recipe_of(params) != before


def test_references_go_on_to_other_machines_and_earlier_ones_stay() -> None:
    before = {"cluster_shared": {"munge": {"salt": "1"}, "images": {"ddp": "x"}}}
    facts = facts_from({"images": {"slurm": {"reference": f"h/slurm@{DIGEST}", "problem": ""}}})

    found = road.handed_on(facts, before)

    assert found["cluster_shared"] == {"munge": {"salt": "1"}, "images": {"ddp": "x", "slurm": f"h/slurm@{DIGEST}"}}
