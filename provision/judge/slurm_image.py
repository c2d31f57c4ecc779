"""Does the registry have Slurm's image, and is it known by digest? Pure judgement of what the controller answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.judge import images
from provision.model.checks import Check, Subject, Verdict
from provision.model.facts import MachineFacts

SUBJECT = Subject("slurm_image", names=("by_digest",), fix="clusterctl provision slurm")
BEFORE = Subject("slurm_image", names=("base",), before=True)


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge the recipe's image on the controller. ``wants``: ``base``, the image that the site names, or empty."""
    base = images.missing(facts, "slurm", "base")
    public = base and not wants["base"]
    return [
        BEFORE.check(
            "base",
            Verdict.WARN if public else Verdict.PASS,
            base or "made from packages",
            "a Debian mirror among this machine's package sources, or an image that the site names",
            source="container_images_mirror, container_images_base, slurm_image_base",
            cause="apt names no Debian mirror here, so the engine pulls the public image, which names one itself",
            fix="nothing to do with an open network; else set container_images_mirror, or container_images_base to a"
            " copy of that image in your registry",
        ),
        images.image(SUBJECT, "by_digest", facts, "slurm", "slurm_image"),
    ]
