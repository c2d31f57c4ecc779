"""What docker compose waits for: containers that others depend on, and a healthy one. Standard library only."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterable, Mapping
from typing import Any

#: How a container is that has not been started yet, and one that has ended.
BEFORE, AFTER = {"created", "configured", "initialized"}, {"exited", "stopped", "dead"}
#: Docker's own, of a check of health: seconds from one to the next, failed ones in a row, and seconds for one.
INTERVAL, RETRIES, TIMEOUT = 30.0, 3, 30.0
NANO = 1e9


class StopError(Exception):
    """Something failed, and what follows would rest on it: (what, what to do), nothing where it has been told."""


async def health(podman: Any, name: str, check: Mapping[str, Any]) -> bool:
    """Ask for a container's health, as nothing else does."""
    limit = (check.get("Timeout") or 0) / NANO or TIMEOUT
    try:
        await asyncio.wait_for(podman.output([], "healthcheck", ["run", name]), limit)
    except (TimeoutError, subprocess.CalledProcessError):
        return False
    return True


async def until(podman: Any, name: str, wanted: str) -> None:
    """Wait until a container is running, healthy, or stopped without an error.

    Raises:
        StopError: it will not be.
    """
    deadline = None
    while True:
        told = json.loads(await podman.output([], "inspect", ["--type=container", name]))[0]
        status, code = told["State"]["Status"], told["State"].get("ExitCode", 0)
        again = (told.get("HostConfig") or {}).get("RestartPolicy", {}).get("Name") not in (None, "", "no")
        check = told["Config"].get("Healthcheck") or {}
        if check.get("Test", ["NONE"]) == ["NONE"]:
            check = {}
        pause = 0.5
        if wanted == "healthy" and not check:
            raise StopError(f"{name} has no healthcheck", "give its service one, or depend on service_started")
        if wanted == "stopped":
            if status in AFTER and code:
                raise StopError(f"{name} ended with {code}", f"docker logs {name}")
            if status in AFTER:
                return
        elif wanted == "running":
            if status not in BEFORE:
                return
        elif status in AFTER and not again:
            raise StopError(f"{name} ended with {code} before it was {wanted}", f"docker logs {name}")
        elif status not in BEFORE:
            interval = (check.get("Interval") or 0) / NANO or INTERVAL
            patience = (check.get("StartPeriod") or 0) / NANO + (check.get("Retries") or RETRIES) * interval
            deadline = deadline or time.monotonic() + patience
            if status == "running" and await health(podman, name, check):
                return
            if time.monotonic() > deadline:
                raise StopError(f"{name} is unhealthy after {patience:g} s", f"docker logs {name}")
            pause = min(interval, 1)
        await asyncio.sleep(pause)


async def dependencies(compose: Any, needed: Iterable[Any]) -> None:
    """Wait for what a service depends on."""
    for one in needed or ():
        for name in compose.container_names_by_service[one.name]:
            wanted = {"exited": "stopped"}.get(one.condition.value, one.condition.value)
            await until(compose.podman, name, wanted if wanted in ("healthy", "stopped") else "running")
