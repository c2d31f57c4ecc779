"""Does the registry of the cluster's images answer this machine? Pure judgement of what it said over HTTPS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provision.model.checks import Check, Subject

SUBJECT = Subject("images", names=("registry_answers",))


def checks(reached: object, registry: str, controller: str, *, away: bool = False) -> list[Check]:
    """Return the checks of one machine's way to the registry, from what Ansible's ``uri`` returned.

    ``registry`` is the site's own, empty for the cluster's, which runs on ``controller``. A site's may ask for a login
    (401): that is an answer, and whether the login is right shows when an image is pulled. With ``away`` the controller
    could not be reached at all, and nobody asked.
    """
    if away:
        return [SUBJECT.unknown("registry_answers", f"not asked: {controller}, where it runs, could not be reached")]
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
