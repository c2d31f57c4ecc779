#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have the key that a package repository is signed with, and no other key.

Why not C(ansible.builtin.get_url) with a checksum: that is one of a file, and the same key is another file each
time that it is exported. C(ansible.builtin.rpm_key) wants gpg on the machine and is for rpm alone. This is for keys
that do not come with a role: those of NVIDIA's CUDA and DOCA repositories, and of mirrors that sign anew.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import fetch_url

DOCUMENTATION = """
module: repository_key
short_description: Have the key that a package repository is signed with, and no other key
description:
  - Fetches a public key, works out its fingerprint, and writes it only if that is one of those expected. Nothing else
    is needed on the machine, not even gpg; apt and rpm read the file as it is.
  - A file that holds the expected keys is left alone, so that a later run needs no network.
options:
  path: {type: path, required: true, description: 'The file, ASCII-armoured: its name ends in .asc for apt.'}
  url: {type: str, default: "", description: 'Where the key is; file:// is a file of the machine.'}
  content: {type: str, default: "", description: 'The key itself, armoured, instead of url.'}
  fingerprints:
    type: list
    elements: str
    required: true
    description: Fingerprints, each of 40 hexadecimal digits, that primary keys in the file may have.
"""

RETURN = """
fingerprints: {type: list, returned: always, description: Fingerprints of the primary keys in the file.}
"""

_ARMOUR = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.S)
_PRIMARY_KEY = 6


class KeyProblemError(Exception):
    """What is wrong with what was found."""


def dearmoured(data):
    """Return the binary form of an armoured or binary key."""
    blocks = _ARMOUR.findall(data)
    if not blocks:
        return data
    result = b""
    for block in blocks:
        # Headers end at the first empty line; the checksum's line begins with "=" and is not part of the data.
        body = re.split(rb"\r?\n\s*\r?\n", block, maxsplit=1)[-1]
        lines = [line.strip() for line in body.splitlines() if line.strip() and not line.startswith(b"=")]
        result += base64.b64decode(b"".join(lines), validate=True)
    return result


def armoured(data):
    """Return a binary key as text."""
    lines = base64.b64encode(data).decode("ascii")
    body = "\n".join(lines[at : at + 64] for at in range(0, len(lines), 64))
    return "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + body + "\n-----END PGP PUBLIC KEY BLOCK-----\n"


def packets(data):
    """Yield tag and body of every OpenPGP packet (RFC 4880, 4.2)."""
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            raise KeyProblemError("it is not an OpenPGP key")
        if head & 0x40:
            tag, first = head & 0x3F, data[at + 1]
            if first < 192:
                size, skip = first, 2
            elif first < 224:
                size, skip = ((first - 192) << 8) + data[at + 2] + 192, 3
            elif first == 255:
                size, skip = int.from_bytes(data[at + 2 : at + 6], "big"), 6
            else:
                raise KeyProblemError("it has packets of unknown length")
        else:
            tag, kind = (head >> 2) & 0x0F, head & 0x03
            if kind == 3:
                raise KeyProblemError("it has packets of unknown length")
            skip = 1 + (1 << kind)
            size = int.from_bytes(data[at + 1 : at + skip], "big")
        if at + skip + size > len(data):
            raise KeyProblemError("it is cut off")
        yield tag, data[at + skip : at + skip + size]
        at += skip + size


def fingerprints(data):
    """Return the fingerprints of the primary keys (RFC 4880, 12.2), in capitals."""
    try:
        binary = dearmoured(data)
        found = []
        for tag, body in packets(binary):
            if tag != _PRIMARY_KEY:
                continue
            if body[:1] != b"\x04":
                raise KeyProblemError("it holds a key of another version than 4")
            # Not for secrecy: this is how the standard defines a fingerprint.
            digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body)  # noqa: S324
            found.append(digest.hexdigest().upper())
    except (IndexError, binascii.Error):
        raise KeyProblemError("it is not an OpenPGP key") from None
    if not found:
        raise KeyProblemError("it holds no public key")
    return found


def unexpected(found, expected):
    """Return the fingerprints that nobody expects."""
    wanted = {re.sub(r"\s", "", text).upper() for text in expected}
    return [text for text in found if text not in wanted]


def there(path, expected):
    """Return the fingerprints in the file if they are as expected, else nothing."""
    try:
        found = fingerprints(Path(path).read_bytes())
    except (OSError, KeyProblemError):
        return []
    return [] if unexpected(found, expected) else found


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "url": {"type": "str", "default": ""},
            "content": {"type": "str", "default": "", "no_log": False},
            "fingerprints": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    path, url, expected = module.params["path"], module.params["url"], module.params["fingerprints"]
    found = there(path, expected)
    if found:
        module.exit_json(changed=False, fingerprints=found)
    where = url or "the key that was given"
    if module.params["content"]:
        data = module.params["content"].encode()
    elif url.startswith("file://"):
        try:
            data = Path(url[7:]).read_bytes()
        except OSError as error:
            module.fail_json(msg=f"{url} cannot be read: {error.strerror}")
    else:
        response, info = fetch_url(module, url, timeout=30)
        if info["status"] != 200:
            module.fail_json(
                msg=f"the key {url} could not be fetched: {info['msg']}. Fix: name a mirror that this machine reaches"
            )
        data = response.read()
    try:
        found = fingerprints(data)
    except KeyProblemError as error:
        module.fail_json(msg=f"{where} is no key to trust: {error}")
    foreign = unexpected(found, expected)
    if foreign:
        module.fail_json(
            msg=f"{where} has the fingerprint {', '.join(foreign)}, expected {', '.join(expected)}. Nothing was "
            "written. Fix: find out who signs the repository, then correct the key or the fingerprint"
        )
    if not module.check_mode:
        Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle, new = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(armoured(dearmoured(data)))
        Path(new).chmod(0o644)
        module.atomic_move(new, path)
        Path(path).chmod(0o644)
    module.exit_json(changed=True, fingerprints=found)


if __name__ == "__main__":
    main()
