# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives of images that are compressed. Standard library, Python 3.8."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib

#: How compressed files begin, and what reads them.
PACKED: dict = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
#: Bytes that are unpacked at once.
CHUNK = 1 << 24


def plain(path):
    """Return whether a file is a tar, not a compressed one."""
    with path.open("rb") as stream:
        return stream.read(262)[257:] == b"ustar"


def unpacked(path, target, check):
    """Return a file, or ``target`` with what is in it, where it is compressed as far as this Python knows it.

    skopeo knows the rest. Debian 12's (1.9.3) cannot read what is compressed by gzip; and whether there is room shows
    while it grows: ``check`` is told before so many bytes more are written.

    Raises:
        ValueError: it is not whole.
    """
    with path.open("rb") as stream:
        head = stream.read(6)
    opened = next((opened for begins, opened in PACKED.items() if head.startswith(begins)), None)
    if opened is None:
        return path
    with opened(path) as packed, target.open("wb") as tar:
        while True:
            try:
                chunk = packed.read(CHUNK)
            except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
                raise ValueError(str(error)) from error
            if not chunk:
                return target
            check(len(chunk))
            tar.write(chunk)
