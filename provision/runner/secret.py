"""Handing a secret to a program by a name in the file system, without the secret ever being in a file.

A named pipe holds nothing: the text goes from our memory to the reader's. It is on no disk, in no argument and in no
environment, and a kill leaves nothing behind but the pipe's name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def offered(path: Path, secret: str) -> Iterator[Path]:
    """Offer ``secret`` to the first reader of ``path`` while the block runs."""
    os.mkfifo(path, 0o600)

    def write() -> None:
        with suppress(OSError), path.open("wb") as pipe:
            pipe.write(secret.encode())

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield path
    finally:
        if writer.is_alive():
            # Nobody has read it: hold the other end open until the writer has come past its own open.
            with suppress(OSError):
                reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                writer.join(1.0)
                os.close(reader)
        with suppress(OSError):
            path.unlink()
