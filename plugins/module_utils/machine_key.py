# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What can be said about a shared key without showing it. Reads only. Standard library only, Python 3.8."""

from __future__ import annotations

import grp
import hashlib
import hmac
import pwd
import secrets
import stat
from pathlib import Path

from ansible.module_utils.machine_state import name_of


def fingerprint(key, salt):
    """Return a hash of the key from which nothing about it can be learnt, and which nobody can have prepared."""
    return hmac.new(bytes.fromhex(salt), key, hashlib.sha256).hexdigest()


def collect(root, ask):
    """Return mode, owner and salted hash of the key at ``path``; ``absent`` says why there is none to speak of."""
    salt = ask.get("salt") or secrets.token_hex(16)
    path = Path(root, str(ask["path"]).lstrip("/"))
    try:
        found, key = path.stat(), path.read_bytes()
    except OSError as error:
        return {"salt": salt, "absent": str(error.strerror)}
    owner = f"{name_of(pwd.getpwuid, found.st_uid)}:{name_of(grp.getgrgid, found.st_gid)}"
    mode = f"{stat.S_IMODE(found.st_mode):04o}"
    return {"salt": salt, "mode": mode, "owner": owner, "fingerprint": fingerprint(key, salt)}
