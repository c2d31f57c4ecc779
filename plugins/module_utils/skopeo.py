# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""skopeo, which copies images between archives and registries: asking it, what it says, and logins. Python 3.8."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

from ansible.module_utils import image_registry
from ansible.module_utils.machine_commands import run

COMMAND = ("skopeo", "--insecure-policy")

#: Seconds for a question to a registry.
ASK = 120

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


def ask(words, environment):
    """Ask skopeo; return its exit code, None where it does not answer, what it said, and why it failed."""
    command = [*COMMAND, *words]
    code, told = run(command, ASK, errors=False, environment=environment)
    # Its warnings are no part of an answer, and its errors are one.
    return code, told, run(command, ASK, environment=environment)[1] if code else told


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
    """Write with what registries are logged in to: the engine's own logins, and the given ones."""
    try:
        auths = dict(json.loads(Path(known).read_text(encoding="utf-8")).get("auths") or {})
    except (OSError, ValueError, AttributeError):
        auths = {}
    for registry, one in logins.items():
        word = f"{one.get('username', '')}:{one.get('password', '')}"
        auths[registry] = {"auth": base64.b64encode(word.encode()).decode()}
    (Path(directory) / "config.json").write_text(json.dumps({"auths": auths}), encoding="utf-8")
