"""Does the registry have Slurm's image, and is it known by digest? Pure judgement of what the image store answered."""

from __future__ import annotations

import re

from provision.model.checks import Check, Subject

SUBJECT = Subject("slurm_image", names=("by_digest",), fix="clusterctl provision slurm")

_BY_DIGEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,300}@(sha256:[0-9a-f]{64})")


def checks(reference: object) -> list[Check]:
    """Judge the image's reference as the image store gave it, None or empty where it has none of this recipe."""
    known = _BY_DIGEST.fullmatch(reference) if isinstance(reference, str) else None
    return [
        SUBJECT.check(
            "by_digest",
            known is not None,
            known[1][:23] if known else "a reference without a digest" if reference else "not built",
            "an image in the registry, known by digest",
            source="slurm_image",
            cause="no image of this recipe has been built, or the registry lost it",
        )
    ]
