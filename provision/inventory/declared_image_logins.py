"""With what the controller logs in to registries for the images of jobs, checked before one is asked.

What is refused may be a password in the wrong place: no value is told, and no name that is none of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provision.errors import ClusterctlError, did_you_mean
from provision.inventory.plain import templated
from provision.model.job_images import JobImage, is_below, registry_problem

_KEYS = ("username", "password")
_FORM = "write it as job_images_logins: {harbor.site.example: {username: robot, password: ...}}"


def require_image_logins(value: Any, images: Sequence[JobImage]) -> None:
    """Refuse logins that no registry could be shown, or that no image needs.

    A value with a template, and one of ansible-vault, which is read as None, only the run knows. From where a
    Containerfile takes its base is not looked for: with one, no registry is refused as unused. Docker, which builds it,
    knows logins of whole registries; skopeo, which copies what a reference names, also of projects
    (containers-auth.json(5)).

    Raises:
        ClusterctlError: it says of which registry, and nothing of what is secret.
    """
    if value is None or templated(value):
        return
    if not isinstance(value, Mapping):
        raise _refusal("", "it must map registries to logins", _FORM)
    references = [image.source for image in images if image.kind == "reference"]
    unknown = any(image.kind == "containerfile" for image in images)
    for registry, login in value.items():
        if problem := registry_problem(registry):
            raise _refusal(registry, f"a registry's name: {problem}", _FORM)
        if not templated(login):
            _require_login(registry, login)
        if any(is_below(reference, registry) for reference in references):
            continue
        host, project, _ = registry.partition("/")
        if not unknown:
            parts = "rpartition" if project else "partition"
            known = {getattr(reference, parts)("/")[0] for reference in references}
            fix = did_you_mean(registry, known, f"take it out, or name an image by {registry}/IMAGE:TAG")
            raise _refusal(registry, f"{registry}: no image of job_images comes from there", fix)
        if project:
            problem = "no reference of job_images is in there, and a Containerfile's base has the registry's login"
            raise _refusal(registry, f"{registry}: {problem}", f"write {host}, where a base comes from there")


def _require_login(registry: str, login: Any) -> None:
    if not isinstance(login, Mapping):
        raise _refusal(registry, f"{registry}: it must be a mapping with username and password", _FORM)
    for key in login:
        if key not in _KEYS:
            fix = did_you_mean(str(key).lower(), _KEYS, _FORM)
            raise _refusal(registry, f"{registry}: a login has username and password, and no other name", fix)
    for key in _KEYS:
        if key not in login:
            raise _refusal(registry, f"{registry}: it has no {key}", _FORM)
        text = login[key]
        if text is None or templated(text):
            continue
        if not isinstance(text, str):
            raise _refusal(registry, f"{registry}: {key} must be a text", "put it in quotes")
        if not text:
            raise _refusal(registry, f"{registry}: {key} is empty", _FORM)
    if ":" in str(login["username"]) and not templated(login["username"]):
        raise _refusal(registry, f"{registry}: username has a colon, at which a password would begin", _FORM)


def _refusal(registry: object, problem: str, fix: str) -> ClusterctlError:
    return ClusterctlError(f"job_images_logins: {problem}", fix=fix, entry=("job_images_logins", None, str(registry)))
