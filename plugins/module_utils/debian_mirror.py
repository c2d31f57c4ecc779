# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From which mirror this machine gets a Debian release, of which images are made. Standard library only, Python 3.8."""

from __future__ import annotations

import re
from pathlib import Path

#: What is taken where no mirror is known: the image that Debian's own project publishes, which names one itself.
PUBLIC = "debian:{suite}-slim"


def sources(suite, mirror="", root="/"):
    """Return apt's lines for a Debian release, from the mirrors that this machine's apt uses; none where it has none.

    apt's sources files are read in either of its two formats. ``mirror`` is one that the site names instead.
    """
    entries = []
    for text in texts(root):
        entries += re.findall(r"^deb\s+(?:\[[^\]]*\]\s*)?(\S+)\s+(\S+)", text, re.M)
        for block in re.split(r"\n\s*\n", text):
            uris = re.search(r"^URIs:\s*(\S+)", block, re.M)
            suites = re.search(r"^Suites:\s*(.+)$", block, re.M)
            if uris and suites and re.search(r"^Types:.*\bdeb\b", block, re.M):
                entries += [(uris[1], word) for word in suites[1].split()]
    security = next((uri for uri, name in entries if name.endswith("-security") and "debian" in uri), "")
    main = mirror or next((uri for uri, name in entries if re.fullmatch(r"[a-z]+", name) and "debian" in uri), "")
    if not main:
        return []
    lines = [f"deb {main} {suite} main", f"deb {main} {suite}-updates main"]
    # A mirror that the site names may keep security updates anywhere; none is guessed.
    return [*lines, f"deb {security} {suite}-security main"] if security and not mirror else lines


def texts(root="/"):
    """Return the texts of this machine's apt sources."""
    directory = Path(root, "etc/apt")
    paths = [directory / "sources.list", *sorted((directory / "sources.list.d").glob("*"))]
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths if path.is_file()]


def base(recipe, root="/"):
    """Return the image that a recipe's build starts from, empty where that is made from packages."""
    if recipe.get("base") or not recipe.get("suite"):
        return recipe.get("base") or ""
    if named := recipe.get("from"):
        return named.replace("{suite}", recipe["suite"])
    return "" if sources(recipe["suite"], recipe.get("mirror") or "", root) else PUBLIC.format(suite=recipe["suite"])
