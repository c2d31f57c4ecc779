# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Which program this is: what proves a cluster must be what its judge believes to have proven it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path


def digest(modules: Mapping[str, str]) -> str:
    """Return one hash of modules, each by its name and its text, whatever their order."""
    whole = hashlib.sha256()
    for name, text in sorted(modules.items()):
        whole.update(f"{name}\0{text}\0".encode())
    return whole.hexdigest()[:32]


def own() -> str:
    """Return the digest of the modules that run here; others that lie beside them are none of the program."""
    loaded = {name.partition(".")[2] for name in sys.modules if name.startswith("ddp_proof.")}
    here = Path(__file__).parent
    names = {name for name in loaded | {"__init__", "__main__"} if "." not in name}
    return digest({name: (here / f"{name}.py").read_text(encoding="utf-8") for name in names})
