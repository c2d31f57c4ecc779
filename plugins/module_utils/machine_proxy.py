# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does the proxy that the inventory declares take this machine's questions? Standard library only, Python 3.8."""

from __future__ import annotations

import http.client
from re import search

from ansible.module_utils import debian_mirror

#: Seconds for an answer.
SECONDS = 10


def collect(ask, root="/", patience=1):
    """Return the proxy's ``status`` for what apt would ask it first, 0 and the ``problem`` where it gives no answer.

    ``ask``: ``host``, ``port``, and whether it speaks ``tls``. No password is here: none is tried.
    """
    mirror = search(r"(?m)^[^#\n]*?(http://[^\s/]+)", "\n".join(debian_mirror.texts(root)))
    kind = http.client.HTTPSConnection if ask["tls"] else http.client.HTTPConnection
    connection = kind(ask["host"], int(ask["port"]), timeout=SECONDS * patience)
    try:
        connection.request("HEAD", f"{mirror[1] if mirror else 'http://localhost'}/")
        return {"status": connection.getresponse().status, "problem": ""}
    except (OSError, http.client.HTTPException) as error:
        return {"status": 0, "problem": getattr(error, "strerror", None) or str(error) or type(error).__name__}
    finally:
        connection.close()
