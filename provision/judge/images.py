"""Does the registry of the cluster's images answer, is it trusted, and has it what was built? Pure judgement."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Literal

from provision.model.checks import Check, Subject, Verdict
from provision.model.consequences import Consequence, Kind
from provision.model.container_facts import CertificateFacts, LoginFacts, MirrorFacts, RegistryFacts
from provision.model.facts import MachineFacts

SUBJECT = Subject(
    "images",
    names=("registry_answers", "certificates", "trust", "login", "mirror", "mirror_certificate"),
    fix="clusterctl provision containers",
)

#: What ``machine_facts`` calls an image's reference.
_BY_DIGEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,300}@(sha256:[0-9a-f]{64})")


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Return the checks of one machine's way to the registry.

    ``wants``: ``registry``, the site's own, empty for the cluster's, which runs on ``controller``; ``here``: this is
    that machine; ``answers``: whether the cluster's registry answers on its own machine, None where that is not known;
    ``away``: that machine could not be reached before the run; ``username`` and ``password`` for a site's registry,
    empty where it asks for none; ``mirror``, the machine that passes images on to this one, empty for none, and
    ``mirrors``: this is that machine.
    """
    mirror = str(wants["mirror"])
    registry, controller = str(wants["registry"]), str(wants["controller"])
    if "registry" not in facts:
        return SUBJECT.all_unknown("the machine did not say how it reaches the registry")
    told = facts["registry"]
    answers = _answers(told, registry, controller)
    if not answers.ok and wants["away"]:
        answers = SUBJECT.unknown("registry_answers", f"{controller}, where it runs, could not be reached")
    elif not answers.ok and not registry and not wants["here"] and wants["answers"] is False:
        answers = SUBJECT.skip("registry_answers", f"it does not answer on {controller} itself", unproven=True)
    return [
        answers,
        _certificates("certificates", told.get("certificates"), "the registry's certificates are good")
        if wants["here"] and not registry
        else SUBJECT.skip("certificates", f"{registry} has its own" if registry else f"{controller} has them"),
        SUBJECT.skip("trust", f"{registry} is the site's") if registry else _trust(told.get("former"), controller),
        _login(told.get("login"), str(wants["username"]), str(wants["password"]))
        if registry and wants["username"]
        else SUBJECT.skip("login", "no user is declared" if registry else "the cluster's registry asks for none"),
        _mirror(told.get("mirror"), mirror) if mirror else SUBJECT.skip("mirror", "no mirror is near"),
        _certificates("mirror_certificate", told.get("mirror_certificate"), "its certificate as a mirror is good")
        if wants["mirrors"]
        else SUBJECT.skip("mirror_certificate", "it is no mirror"),
    ]


def _trust(former: list[str] | None, controller: str) -> Check:
    """Podman and Docker go by such a directory as long as it is there, whoever answers at that port by now."""
    if former is None:
        return SUBJECT.unknown("trust", f"the machine did not say under which names it trusts {controller}")
    return SUBJECT.check(
        "trust",
        not former,
        ", ".join(f"/etc/docker/certs.d/{name}" for name in former) or "none but those of the registry",
        "no directory for a former name of the registry",
        source="container_images_port, container_images_push_port",
        cause="the registry had another port before",
    )


def _mirror(told: MirrorFacts | None, mirror: str) -> Check:
    """A warning: without its mirror a machine pulls from the controller. On the mirror, its service is judged, too."""
    if told is None:
        return SUBJECT.unknown("mirror", f"the machine did not say whether {mirror} passes images on to it")
    status = told.get("status", 0)
    return SUBJECT.check(
        "mirror",
        Verdict.PASS if status == 200 else Verdict.WARN,
        f"{mirror}: HTTP {status}" if status else f"{mirror}: {told.get('error') or 'no answer'}",
        "HTTP 200",
        source="container_images_mirrors",
        cause="the mirror is down, cannot be reached from here, or is not trusted here; images come from the"
        " controller meanwhile",
        fix=f"systemctl status clusterctl-mirror on {mirror}; then clusterctl provision containers",
    )


def _answers(told: RegistryFacts, registry: str, controller: str) -> Check:
    """A site's registry may ask for a login (401): an answer, and whether the login is right shows when one pulls."""
    status = told.get("status", 0)
    wanted = (200, 401) if registry else (200,)
    if registry:
        fix = f"ask those who run {registry}"
    else:
        fix = f"systemctl status docker-registry on {controller}; then clusterctl provision containers"
    return SUBJECT.check(
        "registry_answers",
        status in wanted,
        f"HTTP {status}" if status else told.get("error") or "no answer",
        "HTTP " + " or ".join(str(code) for code in wanted),
        source="container_images_registry",
        cause="the registry is down, its name leads elsewhere, or its certificate is not trusted here",
        fix=fix,
    )


def _certificates(name: str, told: CertificateFacts | None, good: str) -> Check:
    if told is None or told["problem"] is None:
        return SUBJECT.unknown(name, f"the machine did not say whether {good}")
    if why := told.get("unjudged"):
        return SUBJECT.skip(name, why, unproven=True)
    return SUBJECT.check(
        name,
        not told["problem"],
        told["problem"] or "good",
        "certificates that are good for a month, and match each other",
        source="container_images_certificate_days",
        cause="they were never made, were changed, or expire; new ones are made, and all machines get their authority"
        if name == "certificates"
        else "never made, changed, expiring, or signed by an earlier authority; the controller signs a new one",
    )


def _login(told: LoginFacts | None, username: str, password: str) -> Check:
    """The password itself is in no check: both sides are hashed with a salt that was made for this question."""
    if told is None:
        return SUBJECT.unknown("login", "the machine did not say which user it logs in as")
    problem = told.get("absent", "")
    if not problem and told.get("user") != username:
        problem = f"logs in as {told.get('user') or 'nobody'}"
    if not problem and password:
        known = b64encode(f"{username}:{password}".encode())
        expected = hmac.new(bytes.fromhex(told.get("salt", "")), known, hashlib.sha256).hexdigest()
        problem = "" if told.get("fingerprint") == expected else f"logs in as {username} with another password"
    return SUBJECT.check(
        "login",
        not problem,
        problem or f"logs in as {username}",
        f"logs in as {username}",
        source="container_images_username, container_images_password",
        cause="nobody has logged in, or the password changed",
    )


def missing(facts: MachineFacts, image_name: str, key: Literal["lacking", "base"]) -> str:
    """Return what the controller says of an image that it would have to build: what it lacks, or its base."""
    told = facts.get("images") or {}
    return told[image_name].get(key, "") if image_name in told else ""


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
        consequences=[Consequence(Kind.BUILD, image_name, "it takes some minutes")],
    )
