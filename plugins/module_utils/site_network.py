# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How this machine reaches the world: its proxies, authorities and configuration of pip, handed on to builds.

A build in a container has nothing of the machine's own configuration. Standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

PROXIES = ("http_proxy", "https_proxy", "no_proxy")

#: Where distributions keep all authorities that the machine trusts: Debian and Ubuntu, then the RedHat family.
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")

#: What pip reads for root, the last first (https://pip.pypa.io/en/stable/topics/configuration/).
PIP = ("/root/.config/pip/pip.conf", "/root/.pip/pip.conf", "/etc/pip.conf", "/etc/xdg/pip/pip.conf")


def proxies(environ=None, root="/", ask=subprocess.run):
    """Return ``http_proxy``, ``https_proxy`` and ``no_proxy``, each where it is set, in the programs' lower case.

    What this process was given (``cluster_proxy``) comes first, then /etc/environment, then apt's own proxy.
    """
    given = os.environ if environ is None else environ
    found = _lower(given)
    if not {"http_proxy", "https_proxy"} & found.keys():
        found = {**_lower(_assigned(text_of("/etc/environment", root))), **found}
    if not {"http_proxy", "https_proxy"} & found.keys():
        found.update(_of_apt(ask))
    return found


def _lower(values):
    """Return the proxies among these; where both spellings are set, the lower case counts."""
    both = {name: values.get(name) or values.get(name.upper()) for name in PROXIES}
    return {name: value for name, value in both.items() if value}


def text_of(path, root="/"):
    """Return what stands in a file, empty where there is none."""
    try:
        return Path(root, path.lstrip("/")).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _assigned(text):
    return dict(re.findall(r"^\s*(?:export\s+)?(\w+)=[\"']?([^\"'\n]*?)[\"']?\s*$", text, re.M))


def _of_apt(ask):
    try:
        done = ask(["apt-config", "dump", "Acquire"], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    told = done.stdout.decode(errors="replace")
    named = re.findall(r"^Acquire::(https?)::Proxy \"([^\"]+)\";", told, re.M | re.I)
    return {f"{scheme.lower()}_proxy": value for scheme, value in named if value != "DIRECT"}


def pip_files(root="/"):
    """Return the paths that pip's configuration on this machine consists of, its authority's certificate among them."""
    found = [path for path in PIP if Path(root, path[1:]).is_file()]
    return [*found, *([path] if (path := certificate(root)) else [])]


def certificate(root="/"):
    """Return the file of authorities that pip goes by here: its own configuration's, or the machine's; or nothing."""
    texts = [text_of(path, root) for path in PIP]
    named = [name for text in texts for name in re.findall(r"^\s*cert\s*=\s*(\S+)\s*$", text, re.M)]
    return next((path for path in (*named, *BUNDLES) if _readable(root, path)), "")


def _readable(root, path):
    return Path(root, path.lstrip("/")).is_file()
