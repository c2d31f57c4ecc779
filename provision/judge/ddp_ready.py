"""Is a machine ready for the proof that the cluster can train: its user, and the job's image? Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.judge import images
from provision.model.checks import Check, Code, Detail, Subject, Verdict
from provision.model.facts import MachineFacts

SUBJECT = Subject("ddp_validation", ("user", "image", "stored"), fix="clusterctl provision slurm")
BEFORE = Subject("ddp_validation", ("source",), before=True)

_NAME_IT = (
    "set ddp_validation_image to an image that has PyTorch, ddp_validation_wheels to a directory of wheels on the"
    " controller, or index-url in its /etc/pip.conf; then clusterctl provision slurm"
)


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge one machine.

    ``wants``: ``user``, as provision.model.proof.ProofUser tells it; ``builds``, whether this machine has the image of
    the recipe to build; ``compute``, whether jobs run here, from the image ``reference`` (None where the controller did
    not say which, empty where there is none yet) in ``store``, where users find it by
    ``name`` (empty: the site has another image of that name); ``unbuilt``, why the image could not be built in this
    run, empty where it could or nobody tried; ``verify``: the checks are for a verdict.

    An image that cannot be had keeps nobody from running Slurm: it is a warning where it was tried. Without it a
    verdict is unknown: the cluster is unproven.
    """
    return [_user(facts, wants), _source(facts, wants), _image(facts, wants), _stored(facts, wants)]


def _user(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    user = wants["user"]
    found = facts["state"].get("users", {}).get(str(user["name"]))
    expected = f"{user['name']}, uid {user['uid']} and gid {user['gid']}, {user['home']}, {user['shell']}"
    if found is None:
        return SUBJECT.check("user", False, "no such user", expected, cause="never made, or removed")
    observed = f"{user['name']}, uid {found['uid']} and gid {found['gid']}, {found['home']}, {found['shell']}"
    right = (int(user["uid"]), int(user["gid"]), str(user["home"]), str(user["shell"]))
    return SUBJECT.check(
        "user",
        (found["uid"], found["gid"], found["home"], found["shell"]) == right,
        observed,
        expected,
        source="cluster_users" if user["declared"] else "cluster_test_user, cluster_test_uid",
        fix="clusterctl provision base" if user["declared"] else None,
        cause="changed by hand, or a user of this name was there before",
    )


def _source(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    """Warn before anything is changed of what the build will lack; it never refuses."""
    if not wants["builds"]:
        return BEFORE.skip("source", "the image is built elsewhere")
    lacking = images.missing(facts, "ddp", "lacking")
    return BEFORE.check(
        "source",
        Verdict.WARN if lacking else Verdict.PASS,
        lacking or "nothing is known to be missing",
        "sources of the training job's image",
        source="ddp_validation_image, ddp_validation_wheels, ddp_validation_packages",
        cause="the image cannot be built: Slurm will run, without proof that the cluster can train",
        fix=_NAME_IT,
    )


def _image(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    if not wants["builds"]:
        return SUBJECT.skip("image", "it is built elsewhere")
    found = images.image(SUBJECT, "image", facts, "ddp", "ddp_validation")
    return _unproven(found, wants) if found.verdict is Verdict.FAIL else found


def _unproven(check: Check, wants: Mapping[str, Any]) -> Check:
    """Return what the lack of the image is: something to do, a warning where that was tried, unknown for a verdict."""
    name, why = check.id.rpartition(".")[2], str(wants["unbuilt"])
    if wants["verify"]:
        return SUBJECT.unknown(name, f"unproven: there is no image to train with: {check.observed}", fix=_NAME_IT)
    if why:
        return SUBJECT.check(
            name, Verdict.WARN, check.observed, check.expected, source=check.source, cause=why, fix=_NAME_IT
        )
    return check


def _stored(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    if not wants["compute"]:
        return SUBJECT.skip("stored", "no jobs run on this machine")
    reference = wants["reference"]
    if reference is None:
        return SUBJECT.unknown("stored", "the controller did not say which image it has built")
    names = facts["state"].get("stores", {}).get(str(wants["store"]), [])
    there, named = reference in names, wants["name"] in ("", *names)
    found = SUBJECT.check(
        "stored",
        bool(reference) and there and named,
        _place(there, named) if reference else "still to be built",
        "the job's image in the store that all users share, under its name",
        source=str(wants["store"]),
        cause="never placed, removed, or built again since",
        details=[] if reference else [Detail(Code.UNBUILT)],
    )
    if not reference and (wants["verify"] or wants["unbuilt"]):
        return SUBJECT.skip(
            "stored", "there is no such image; see ddp_validation.image of the controller", unproven=True
        )
    return found


def _place(there: bool, named: bool) -> str:
    return ("there" if named else "there without its name") if there else "not there"
