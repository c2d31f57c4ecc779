"""Does the registry of the cluster's images answer this machine? Pure judgement of what it said over HTTPS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provision.model.checks import Check, Subject
from provision.model.facts import MachineFacts

#: What ``machine_facts`` calls an image's reference.
_BY_DIGEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,300}@(sha256:[0-9a-f]{64})")

SUBJECT = Subject("images", names=("registry_answers",))


def checks(reached: object, registry: str, controller: str) -> list[Check]:
    """Return the checks of one machine's way to the registry, from what Ansible's ``uri`` returned.

    ``registry`` is the site's own, empty for the cluster's, which runs on ``controller``. A site's may ask for a login
    (401): that is an answer, and whether the login is right shows when an image is pulled.
    """
    given: Mapping[str, Any] = reached if isinstance(reached, Mapping) else {}
    status, said = given.get("status"), given.get("msg")
    answered = isinstance(status, int) and not isinstance(status, bool) and status > 0
    wanted = (200, 401) if registry else (200,)
    if registry:
        fix = f"ask those who run {registry}"
    else:
        fix = f"systemctl status docker-registry on {controller}; then clusterctl provision containers"
    return [
        SUBJECT.check(
            "registry_answers",
            answered and status in wanted,
            f"HTTP {status}" if answered else said if isinstance(said, str) and said else "no answer",
            "HTTP " + " or ".join(str(code) for code in wanted),
            source="container_images_registry",
            cause="the registry is down, its name leads elsewhere, or its certificate is not trusted here",
            fix=fix,
        )
    ]


def image(subject: Subject, name: str, facts: MachineFacts, image_name: str, source: str) -> Check:
    """Return the check ``name``: whether the registry has the image, known by digest, from the controller's answer.

    A registry that does not answer is the registry's own failure: nothing is built anew that may well be there.
    """
    told = facts.get("images")
    if told is None or image_name not in told:
        return subject.unknown(name, "the controller did not say which images it has built")
    answer = told[image_name]
    known = _BY_DIGEST.fullmatch(answer["reference"])
    if known and answer["problem"]:
        return subject.skip(name, f"{known[1][:23]} was built; {answer['problem']}", unproven=True)
    return subject.check(
        name,
        known is not None,
        known[1][:23] if known else answer["problem"] or "a reference without a digest",
        "an image in the registry, known by digest",
        source=source,
        cause="no image of this recipe has been built, or the registry lost it",
    )
