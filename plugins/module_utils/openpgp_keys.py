# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Public keys of OpenPGP as files hold them, and their fingerprints: without gpg. Standard library only, Python 3.8."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

#: A block of a file of public keys.
ARMOUR = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.S)
_PRIMARY_KEY = 6


class KeyProblemError(Exception):
    """What is wrong with what was found."""


def dearmoured(data):
    """Return the binary form of an armoured or binary key."""
    blocks = ARMOUR.findall(data)
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


def read(data):
    """Return the fingerprints of the primary keys of an armoured file, the first 64; none where it is no such."""
    try:
        return fingerprints(data)[:64] if ARMOUR.search(data) else []
    except KeyProblemError:
        return []


def unexpected(found, expected):
    """Return the fingerprints that nobody expects."""
    wanted = {re.sub(r"\s", "", text).upper() for text in expected}
    return [text for text in found if text not in wanted]
