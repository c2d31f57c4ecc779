"""Does the registry have Slurm's image, and is it known by digest? Pure judgement of what the controller answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.judge import images
from provision.model.checks import Check, Subject
from provision.model.facts import MachineFacts

SUBJECT = Subject("slurm_image", names=("by_digest",), fix="clusterctl provision slurm")


def checks(facts: MachineFacts, _: Mapping[str, Any]) -> list[Check]:
    """Judge the image of the recipe, on the controller."""
    return [images.image(SUBJECT, "by_digest", facts, "slurm", "slurm_image")]
