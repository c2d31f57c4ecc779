# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""By which hash texts are compared. Standard library, Python 3.8."""

from __future__ import annotations

import hashlib
import json


def sums(files):
    """Return the SHA-256 of each text, by the names of the files. A byte that was no UTF-8 counts as it was read."""
    texts = {name: text.encode("utf-8", "surrogateescape") for name, text in sorted(files.items())}
    return {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}


def tag(hashes):
    """Return by which tag of a shared registry an image is found by whoever has the same files, of these hashes."""
    return f"of-{hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()[:16]}"
