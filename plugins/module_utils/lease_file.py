# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""The file with the cluster's lease, on the controller. Standard library only, Python 3.8.

It is never removed, so that all hold the same file's lock; of nobody it is empty. When it was last written is its
holder's last sign of life.
"""

from __future__ import annotations

import fcntl
import os
import time

#: Not below /var/lib/clusterctl: what is there says that jobs have left something.
PATH = "/var/lib/clusterctl-lease"

#: Bytes of a lease.
MOST = 4096


def look(path):
    """Return the lease and its age in seconds."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return {"text": "", "age": 0.0}
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return _there(descriptor)
    finally:
        os.close(descriptor)


def exchange(path, seen, text):
    """Write the lease where it still is what was ``seen``; return whether that was so, and the lease as it is now."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        written = _there(descriptor)["text"] == seen
        if written:
            new = text.encode()
            # First what it says, then its length: a disk that is full leaves the old one.
            os.pwrite(descriptor, new, 0)
            os.ftruncate(descriptor, len(new))
            os.utime(descriptor)
            os.fsync(descriptor)
        return written, _there(descriptor)
    finally:
        os.close(descriptor)


def _there(descriptor):
    text = os.pread(descriptor, MOST, 0).decode("utf-8", "replace")
    return {"text": text, "age": max(0.0, time.time() - os.fstat(descriptor).st_mtime)}
