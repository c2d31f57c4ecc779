# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""skopeo, which copies images between archives and registries: asking it, what it says, and logins. Python 3.8."""

from __future__ import annotations

import base64
import json
import re
import tempfile
from pathlib import Path

from ansible.module_utils import image_registry
from ansible.module_utils.machine_commands import run

COMMAND = ("skopeo", "--insecure-policy")

#: Seconds for a question to a registry.
ASK = 120

#: What Docker's command line calls docker.io, where it keeps logins (docker/cli, registry.IndexServer).
DOCKERS = "https://index.docker.io/v1/"

#: What skopeo and docker say, and what to do.
CAUSES = (
    (r"x509|certificate", "its certificate is not trusted: put its authority's into /etc/docker/certs.d/{host}/ca.crt"),
    (r"no such host|connection refused|timeout|timed out|deadline|unreachable|EOF$", "it does not answer from here"),
    (
        r"unauthorized|authentication required|access .*denied|forbidden",
        "it asks for a password, or has another for this user: job_images_logins: {{{host}: {{username: ..., password:"
        " ...}}}}, the password in ansible-vault. Some say so of an image that is not there, too",
    ),
    (r"manifest unknown|name unknown|not found|no such image", "it has no such image: look at name and tag"),
    (r"no space left", "the controller's disk is full"),
)


def ask(words, environment, seconds=ASK):
    """Ask skopeo; return its exit code, None where it does not answer, what it said, and why it failed."""
    # Its warnings are no part of an answer, and its errors are one. To ask twice would unpack an archive twice.
    with tempfile.TemporaryFile() as errors:
        code, told = run([*COMMAND, *words], seconds, errors=errors, environment=environment)
        errors.seek(0)
        return code, told, errors.read().decode("utf-8", "replace") if code else told


def cause(said, host):
    """Return why a program failed, from what it said, in one line."""
    fitting = (fix for pattern, fix in CAUSES if re.search(pattern, said, re.IGNORECASE | re.MULTILINE))
    return next(fitting, "").format(host=host)


def last(said):
    """Return the last line of what a program said, without its own frame."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    found = re.search(r'level=fatal msg="(.*)"$', lines[-1]) if lines else None
    return (found[1].replace('\\"', '"') if found else lines[-1] if lines else "it said nothing")[:600]


def login(directory, logins, known=image_registry.LOGIN):
    """Write with what registries are logged in to: the machine's own logins, and the given ones, which win.

    C(config.json) is Docker's: all that the machine's own says, so that its proxies and helpers count. C(auth.json) is
    skopeo's. A store of Docker's comes before logins in the file, and a helper named "" switches that off for one
    registry; skopeo would start a helper of that name, and does so before it looks for the login of a project
    (containers-auth.json(5)), of which Docker knows nothing. The machine's context is not taken: it is a file beside
    it. Docker knows its own registry's login by an address.

    Raises:
        ValueError: a login, which only the run knew, is none; no value of it is told.
    """
    for registry, one in logins.items():
        if not isinstance(one, dict) or not all(
            isinstance(one.get(key), str) and one[key] for key in ("username", "password")
        ):
            raise ValueError(f"job_images_logins: {registry} has not both a username and a password, as texts")
    if "docker.io" in logins:
        logins = {**logins, DOCKERS: logins["docker.io"]}
    try:
        config = json.loads(Path(known).read_text(encoding="utf-8"))
        auths, helpers = dict(config.get("auths") or {}), dict(config.get("credHelpers") or {})
    except (OSError, ValueError, AttributeError, TypeError):
        config, auths, helpers = {}, {}, {}
    config.pop("currentContext", None)
    for registry, one in logins.items():
        word = f"{one['username']}:{one['password']}"
        auths[registry] = {"auth": base64.b64encode(word.encode()).decode()}
    given = {registry.partition("/")[0] for registry in logins}
    others = {registry: helper for registry, helper in helpers.items() if registry not in logins}
    asked = {registry: helper for registry, helper in others.items() if registry not in given}
    mine = dict.fromkeys(logins, "") if helpers or config.get("credsStore") else {}
    for name, said in (
        ("config.json", {**config, "auths": auths, "credHelpers": {**others, **mine}}),
        ("auth.json", {"auths": auths, "credHelpers": asked}),
    ):
        (Path(directory) / name).write_text(
            json.dumps({key: one for key, one in said.items() if one}), encoding="utf-8"
        )
