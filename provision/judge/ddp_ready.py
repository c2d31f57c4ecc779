"""Is a machine ready for the proof that the cluster can train: its user, and the job's image? Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.judge import images
from provision.model.checks import Check, Subject
from provision.model.facts import MachineFacts

SUBJECT = Subject("ddp_validation", ("user", "image", "stored"), fix="clusterctl provision slurm")


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge one machine.

    ``wants``: ``user``, as provision.model.proof.ProofUser tells it; ``builds``, whether this machine has the image of
    the recipe to build; ``compute``, whether jobs run here, from the image ``reference`` (None where the controller did
    not say which) in ``store``.
    """
    return [_user(facts, wants), _image(facts, wants), _stored(facts, wants)]


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


def _image(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    if not wants["builds"]:
        return SUBJECT.skip("image", "it is built elsewhere")
    return images.image(SUBJECT, "image", facts, "ddp", "ddp_validation")


def _stored(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    if not wants["compute"]:
        return SUBJECT.skip("stored", "no jobs run on this machine")
    reference = wants["reference"]
    if reference is None:
        return SUBJECT.unknown("stored", "the controller did not say which image it has built")
    there = reference in facts["state"].get("stores", {}).get(str(wants["store"]), [])
    return SUBJECT.check(
        "stored",
        bool(reference) and there,
        "there" if reference and there else "not there" if reference else "still to be built",
        "the job's image in the store that all users share",
        source=str(wants["store"]),
        cause="never placed, removed, or built anew since",
    )
