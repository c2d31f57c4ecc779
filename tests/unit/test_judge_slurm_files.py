"""The judgement of Slurm's image and of Slurm's files."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

import pytest

from provision.judge import slurm_conf, slurm_image

DIGEST = "head:5000/slurm@sha256:" + "a" * 64
TEXTS = {"slurm.conf": "A=1\n", "gres.conf": "", "cgroup.conf": "B=2\n"}


def stat(name: str, text: str | None) -> dict[str, Any]:
    if text is None:
        return {"item": name, "stat": {"exists": False}}
    return {"item": name, "stat": {"exists": True, "checksum": sha1(text.encode(), usedforsecurity=False).hexdigest()}}


def judged(found: Any, texts: Any = TEXTS) -> tuple[str, str]:
    (check,) = (one for one in slurm_conf.checks(found, texts) if one.id == "slurm_conf.files")
    return str(check.verdict), check.observed


def test_an_image_that_is_known_by_digest_passes_and_nothing_else_does() -> None:
    for reference in (DIGEST, "head:5000/slurm:latest", "", None, 7, DIGEST + "\n", DIGEST + " {{ 7 }}"):
        (check,) = slurm_image.checks(reference)
        assert check.ok is (reference == DIGEST), reference


def test_both_subjects_always_return_all_of_their_names() -> None:
    for found in ([], [stat("slurm.conf", "A=1\n")], "nonsense", None, [7], [{"item": "slurm.conf", "stat": 3}]):
        assert [check.id for check in slurm_conf.checks(found, TEXTS)] == list(slurm_conf.SUBJECT.ids)
    assert [check.id for check in slurm_image.checks("")] == list(slurm_image.SUBJECT.ids)


def test_files_as_rendered_pass() -> None:
    assert judged([stat(name, text) for name, text in TEXTS.items()]) == ("pass", "none different")


@pytest.mark.parametrize(
    ("found", "observed"),
    [
        ("A=2\n", "slurm.conf different"),
        (None, "slurm.conf missing"),
    ],
)
def test_a_file_that_differs_or_is_missing_fails_by_name(found: str | None, observed: str) -> None:
    assert judged([stat(name, found if name == "slurm.conf" else text) for name, text in TEXTS.items()]) == (
        "fail",
        observed,
    )


def test_a_file_that_nothing_was_said_about_is_unknown() -> None:
    found = [stat(name, text) for name, text in TEXTS.items() if name != "gres.conf"]

    assert judged(found) == ("unknown", "gres.conf could not be read")
    assert judged(None)[0] == "unknown"


def test_confinement_is_proven_only_where_the_files_confine() -> None:
    verdicts = {}
    for reason in (None, "", "node3: cgroup v1"):
        *_, check = slurm_conf.checks([], TEXTS, reason)
        verdicts[reason] = (str(check.verdict), check.unproven)

    assert verdicts == {None: ("skip", False), "": ("pass", False), "node3: cgroup v1": ("skip", True)}


def test_an_inventory_that_renders_nothing_fails_with_its_own_words() -> None:
    files, confinement = slurm_conf.refused("node3 has cgroup v1", "boot it with v2")

    assert (files.verdict, files.cause, files.fix) == ("fail", "node3 has cgroup v1", "boot it with v2")
    assert confinement.verdict == "unknown"


def test_a_node_has_no_slurm_conf_of_its_own() -> None:
    none_wanted = slurm_conf.OTHERS

    assert judged([stat("slurm.conf", None)], none_wanted)[0] == "pass"
    assert judged([stat("slurm.conf", "A=1\n")], none_wanted) == ("fail", "slurm.conf exists")
    assert judged([{"item": "slurm.conf", "stat": {"exists": True}}], none_wanted)[0] == "fail", "a directory"
    assert judged([], none_wanted)[0] == "unknown"
