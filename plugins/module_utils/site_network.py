# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How this machine reaches the world: its proxies, authorities and configuration of pip, handed on to builds.

A build in a container has nothing of the machine's own configuration. Standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from ansible.module_utils.machine_commands import printed

PROXIES = ("http_proxy", "https_proxy", "no_proxy")

#: What the role base_system writes of cluster_proxy.
DECLARED = "/etc/clusterctl/proxy"

#: Where Debian and Ubuntu keep all authorities that the machine trusts.
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"

#: What pip reads for root, the last first (https://pip.pypa.io/en/stable/topics/configuration/).
PIP = ("/root/.config/pip/pip.conf", "/root/.pip/pip.conf", "/etc/pip.conf", "/etc/xdg/pip/pip.conf")


def proxies(environ=None, root="/", ask=printed):
    """Return ``http_proxy``, ``https_proxy`` and ``no_proxy``, each where it is set, in the programs' lower case.

    What the inventory declares (``cluster_proxy``) comes first, then this process's environment, /etc/environment, and
    apt's own proxy.
    """
    found = _lower(_assigned(text_of(DECLARED, root)))
    for other in (os.environ if environ is None else environ, _assigned(text_of("/etc/environment", root))):
        if not {"http_proxy", "https_proxy"} & found.keys():
            found = {**found, **_lower(other)}
    if not {"http_proxy", "https_proxy"} & found.keys():
        found.update(_of_apt(ask))
    # The registry of the cluster's images is on this very machine wherever images are made.
    return {**found, "no_proxy": ",".join([found.get("no_proxy", "localhost"), socket.gethostname()])} if found else {}


def adopt():
    """Let this process, and those that it starts, go through the machine's proxies."""
    os.environ.update(proxies())


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
    told = ask(["apt-config", "dump", "Acquire"], 20) or ""
    named = re.findall(r"^Acquire::(https?)::Proxy \"([^\"]+)\";", told, re.M | re.I)
    return {f"{scheme.lower()}_proxy": value for scheme, value in named if value != "DIRECT"}


def pip_files(root="/"):
    """Return the paths of pip's configuration on this machine."""
    return [path for path in PIP if _readable(root, path)]


def certificate(root="/"):
    """Return the file of authorities that pip goes by here: its own configuration's, or the machine's; or nothing."""
    texts = [text_of(path, root) for path in PIP]
    named = [name for text in texts for name in re.findall(r"^\s*cert\s*=\s*(\S+)\s*$", text, re.M)]
    return next((path for path in (*named, BUNDLE) if _readable(root, path)), "")


def _readable(root, path):
    return Path(root, path.lstrip("/")).is_file()
