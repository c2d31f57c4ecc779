# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether Python packages for an image can be had here: from a directory of wheels, or pip's index. Builds nothing.

Standard library only, Python 3.8.
"""

from __future__ import annotations

import base64
import os
import platform
import re
import ssl
import urllib.parse
import urllib.request
from html import unescape

from ansible.module_utils import site_network

#: The Python of a Debian release, as wheels name it.
PYTHONS = {"bookworm": "cp311", "trixie": "cp313"}

#: Bytes of an index page that are read: PyPI's of torch has half a million.
LARGEST = 8_000_000


def lacking(recipe, seconds, root="/"):
    """Return what the build of a recipe lacks on this machine, as a sentence; empty where nothing is known to.

    ``recipe`` has the packages in C(wheels) among its directories, or pip gets those in C(packages). An index is asked
    only where pip's configuration names one: what pip does without is its own business.
    """
    tag, directory = PYTHONS.get(recipe.get("suite") or ""), (recipe.get("directories") or {}).get("wheels")
    if directory:
        try:
            return _without(_projects(entry.name for entry in os.scandir(directory)), tag, directory, ["torch"])
        except OSError as error:
            return f"{directory}: {error.strerror}"
    index = index_of(root)
    if not recipe.get("packages") or not index:
        return ""
    name = re.split(r"[^A-Za-z0-9._-]", recipe["packages"][0])[0]
    try:
        page = _page(f"{index.rstrip('/')}/{name}/", seconds, root)
    except (OSError, ValueError) as error:
        return f"{_shown(index)}: {getattr(error, 'reason', None) or error}"
    return _without(_projects(_named(page)), tag, _shown(index), [name])


def index_of(root="/"):
    """Return the index that pip's configuration on this machine names, or nothing."""
    texts = [site_network.text_of(path, root) for path in site_network.PIP]
    return next((found[1] for text in texts if (found := re.search(r"^\s*index-url\s*=\s*(\S+)", text, re.M))), "")


def _named(page):
    """Return the wheels that a page of an index names: by its links, as pip, because web servers cut what they show."""
    links = re.findall(r"""<a\s[^>]*?href\s*=\s*["']?([^"'\s>]+)""", page, re.I)
    return [urllib.parse.unquote(urllib.parse.urlsplit(unescape(link)).path.rsplit("/", 1)[-1]) for link in links]


def _shown(index):
    """Return an address without the password that may stand in it."""
    return re.sub(r"//[^/@]*@", "//", index)


def _projects(names):
    """Return projects and tags of the wheels among these names of files."""
    split = (name[:-4].split("-") for name in names if name.endswith(".whl"))
    return [(parts[0].lower().replace("_", "-"), "-".join(parts[2:])) for parts in split if len(parts) >= 5]


def _without(wheels, tag, where, names):
    """Return what is not among the wheels, for this processor and the release's Python."""
    machine = platform.machine()
    for name in names:
        fit = [tags for project, tags in wheels if project == name and (tags.endswith((machine, "any")))]
        if tag and not any(tag in tags or "py3" in tags or "abi3" in tags for tags in fit):
            return f"{where}: no wheel of {name} for {tag} and {machine}"
    return ""


def _page(address, seconds, root):
    if not address.startswith(("http://", "https://")):
        raise ValueError("it is not an address that starts with http")
    proxies = site_network.proxies(root=root)
    user, _, host = urllib.parse.urlsplit(address).netloc.rpartition("@")
    request = urllib.request.Request(re.sub(r"//[^/@]*@", "//", address))  # noqa: S310 - http alone, above
    if user:
        coded = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        request.add_header("Authorization", f"Basic {coded}")
    direct = urllib.request.proxy_bypass_environment(host, {"no": proxies.pop("no_proxy", "")})  # type: ignore[attr-defined]
    through = {} if direct else {name.partition("_")[0]: value for name, value in proxies.items()}
    context = ssl.create_default_context(cafile=site_network.certificate(root) or None)
    handlers = (urllib.request.ProxyHandler(through), urllib.request.HTTPSHandler(context=context))
    with urllib.request.build_opener(*handlers).open(request, timeout=seconds) as answer:
        return answer.read(LARGEST).decode("utf-8", "replace")
