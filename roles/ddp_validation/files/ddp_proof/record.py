# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What a rank says about itself while it lives, for whoever asks when it does not."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COMMUNICATION = re.compile(r"gloo|nccl|tim(ed|e) ?out|connection|peer|socket|store|broken pipe", re.IGNORECASE)


def write_json(path: Path, document: object) -> None:
    """Write atomically: a reader sees the old file or the new one, never half of it."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with fresh.open("w", encoding="utf-8") as stream:
        json.dump(document, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(path)


class Record:
    """The rank's own witness: where it is, whether it waits for others, how it ended.

    ``calls`` counts conversations with other ranks; ``waiting`` names the one in progress. Of ranks that stopped, those
    that were not waiting, or are fewer calls ahead than the rest, are the ones the others waited for.
    """

    def __init__(self, path: Path, **facts: object) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._data: dict[str, Any] = {"schema": "ddp_proof.rank/1", "state": "running", "step": "start", **facts}
        self._data |= {"calls": 0, "waiting": "", "error": None, "started": time.time()}
        self.update()

    def update(self, **facts: object) -> None:
        """Change facts and write the file; a rank that has ended says nothing more."""
        with self._lock:
            if self._data["state"] != "running":
                return
            self._data |= {**facts, "updated": time.time()}
            write_json(self._path, self._data)

    @contextlib.contextmanager
    def talking(self, what: str) -> Iterator[None]:
        """Mark a conversation with other ranks. After an exception the mark stays: it says where the rank was."""
        self._data["calls"] += 1
        self._data["waiting"] = what
        yield
        self._data["waiting"] = ""

    def fail(self, error: BaseException) -> None:
        """Record why this rank gives up: by its own fault, or because it could not talk to the others."""
        text = f"{type(error).__name__}: {error}"
        broken = type(error).__name__.startswith("Dist") or COMMUNICATION.search(text)
        kind = "communication" if self._data["waiting"] and broken else "own"
        self.update(state="failed", error={"kind": kind, "text": text[:2000]})

    def listen(self) -> None:
        """Keep the file fresh, and say goodbye on SIGTERM even while the main thread is stuck in a collective."""

        def watch() -> None:
            told = -1
            while True:
                if signal.sigtimedwait({signal.SIGTERM}, 1.0):
                    self.update(state="terminated")
                    os._exit(143)
                if told != self._data["calls"]:
                    told = self._data["calls"]
                    self.update()

        threading.Thread(target=watch, name="record", daemon=True).start()
