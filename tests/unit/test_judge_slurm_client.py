"""Slurm's commands on a machine: those of the daemons' image, whole, and in use."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from provision import content
from provision.judge import slurm_client
from provision.model.checks import Verdict

WANTS = {"install": True, "image": "head:5000/slurm@sha256:abc", "name": "abc", "user": "slurm", "uid": "64030"}
SLURM = {"uid": 64030, "gid": 64030, "home": "/nonexistent", "shell": "/usr/sbin/nologin"}


def facts(text: str = "whole abc\ncurrent abc", rc: int | None = 0, user: dict[str, Any] | None = None) -> Any:
    users = {"slurm": user or SLURM}
    return {"state": {"users": users}, "commands": {"clients": {"rc": rc, "text": text}}}


def judged(found: Any, **wants: Any) -> dict[str, Any]:
    return {check.id: check for check in slurm_client.checks(found, {**WANTS, **wants})}


def test_the_images_own_commands_in_use_are_good() -> None:
    assert [check.verdict for check in judged(facts()).values()] == [Verdict.PASS] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("current ", "missing; in use: none"),
        ("broken abc\ncurrent abc", "broken; in use: abc"),
        ("whole abc\nwhole old\ncurrent old", "whole; in use: old"),
        ("whole old\ncurrent old", "missing; in use: old"),
        ("", "missing; in use: none"),
        ("whole\ncurrent\n\x00", "missing; in use: none"),
    ],
)
def test_what_is_not_as_exported_is_said(text: str, said: str) -> None:
    check = judged(facts(text))["slurm_client.programs"]

    assert (check.verdict, check.observed) == (Verdict.FAIL, said)


def test_of_an_image_that_is_still_to_be_built_there_are_none() -> None:
    check = judged(facts(), image="", name="")["slurm_client.programs"]

    assert (check.verdict, check.observed) == (Verdict.FAIL, "of an image that is still to be built")


@pytest.mark.parametrize(
    ("found", "wants"), [(facts("did not answer in 15 s", rc=None), {}), (facts(), {"image": None, "name": ""})]
)
def test_what_was_not_said_is_unknown(found: Any, wants: dict[str, Any]) -> None:
    assert judged(found, **wants)["slurm_client.programs"].verdict is Verdict.UNKNOWN


def test_slurms_user_has_the_number_that_the_image_has() -> None:
    other = judged(facts(user={**SLURM, "uid": 981}))["slurm_client.user"]

    assert (other.verdict, other.observed) == (Verdict.FAIL, "slurm, uid 981 and gid 64030")
    assert "give its files and its user the number 64030" in other.fix


def test_where_the_site_wants_none_nothing_is_judged() -> None:
    assert {check.verdict for check in judged({}, install=False).values()} == {Verdict.SKIP}


moved = runpy.run_path(str(content.ROOT / "roles/slurm_image/files/image/export-clients"))["moved"]


def test_a_place_that_is_written_into_a_library_keeps_its_length() -> None:
    old, new = b"/usr/lib/x86_64-linux-gnu/slurm-wlm", b"/opt/clusterctl/slurm/0123456789ab"

    found = moved(b"a\0" + old + b"\0b", old, new)

    assert found == b"a\0" + new + b"\0" * (len(old) - len(new) + 1) + b"b"


def test_a_longer_text_that_only_begins_like_the_place_stays() -> None:
    old = b"/usr/lib/x86_64-linux-gnu/slurm-wlm"

    assert moved(b"\0" + old + b"/libslurmfull.so\0", old, b"/opt/x") == b"\0" + old + b"/libslurmfull.so\0"


def test_a_place_that_is_too_long_is_refused() -> None:
    with pytest.raises(SystemExit, match="is longer than"):
        moved(b"", b"/usr/lib", b"/opt/clusterctl")
