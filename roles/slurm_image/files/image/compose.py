#!/usr/bin/python3 -I
"""docker compose: podman-compose, which calls docker where it would call Podman, and ends as Docker's own would.

podman-compose goes on where something has failed, ends with 0, and waits without end for a service that will never be
healthy: in a job nothing asks for a container's health, which is systemd's elsewhere. It passes over a reservation of
GPUs that names no driver, and knows no "gpus" of a service, nor a file in another directory.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path[:0] = ["/usr/local/libexec/clusterctl/docker"]

from compose_waits import StopError, dependencies  # noqa: E402

#: Podman's commands whose failure is compose's. Without a container to do it to, the first ones have nothing to do.
OF_WHAT_IS_THERE = {"stop", "rm", "restart", "kill", "logs", "pause", "unpause"}
COUNTED = OF_WHAT_IS_THERE | {"run", "create", "build", "pull", "push", "start", "cp", "ps", "rmi", "stats", "wait"}
#: What is put in its place in podman-compose (1.3). An image of the site's own may have one that is made otherwise.
REPLACED = ("Podman", "check_dep_conditions", "run_container", "container_to_gpu_res_args")
#: What ends all at once: what comes after it rests on it.
ENDS = {"run", "create", "build"}


def reserved(service: Mapping[str, Any], words: list[str]) -> None:
    """Add to a container's options the GPUs that its service reserves."""
    whole = service.get("gpus") or []
    devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
    of_gpus = [device for device in devices if "gpu" in device.get("capabilities", [])]
    for device in [{"count": whole}] if isinstance(whole, str) else [*whole, *of_gpus]:
        if device.get("driver") in (None, "", "nvidia"):
            numbers = ",".join(map(str, device.get("device_ids", [])))
            words.append(f"--gpus=device={numbers}" if numbers else f"--gpus={device.get('count', 'all')}")


def engine(base: Any) -> Any:
    """Return podman-compose's Podman with Docker's ends."""

    class Engine(base):
        #: Whether something has failed, and how the first container ended that was looked on.
        failed = False
        first: int | None = None
        #: Whether the user has ended what was looked on.
        interrupted = False

        async def there(self, *more: str) -> list[str]:
            """Return the project's containers."""
            project = f"label=io.podman.compose.project={self.compose.project_name}"
            words = ["--all", "--filter", project, *more, "--format", "{{.Names}}"]
            return (await self.output([], "ps", words)).decode().split()

        async def run(self, podman_args: Any, cmd: str = "", cmd_args: Any = None, *rest: Any, **more: Any) -> Any:
            """Run a command of Podman's, of which something may be there already, or not at all."""
            words = [str(word) for word in cmd_args or []]
            known = self.compose.container_by_name or {}
            name = next((word.partition("=")[2] for word in words if word.startswith("--name=")), "")
            once = cmd == "run" and name not in known
            if self.dry_run:
                return await super().run(podman_args, cmd, words, *rest, **more)
            if cmd in OF_WHAT_IS_THERE and (named := [word for word in words if word in known]):
                there = await self.there(*(["--filter=status=running"] if cmd in ("kill", "pause") else []))
                words = [word for word in words if word not in named or word in there]
                if not set(named) & set(there):
                    return 0
            if cmd in ("run", "create") and name in known:
                if name in await self.there():
                    return 0
                if cmd == "run":
                    await dependencies(self.compose, known[name].get("_deps"))
            if once and not getattr(args := self.compose.global_args, "no_deps", True):
                first = self.compose.container_names_by_service[args.service][0]
                await dependencies(self.compose, known[first].get("_deps"))
            if cmd in ("run", "create"):
                # What a service depends on is waited for here, and can be removed before it, as with Docker.
                words = [word for word in words if not word.startswith("--requires=")]
            watched = cmd == "start" and "-a" in words
            if watched and set(words) & set(await self.there("--filter=status=running")):
                # Podman would start it once more, and fail.
                cmd, words = "attach", ["--no-stdin", words[-1]]
            code = await super().run(podman_args, cmd, words, *rest, **more)
            if watched and self.first is None:
                self.first = code
            # A container's own end is none of compose's, unless it never began.
            if code in (125, 126, 127) if watched else code and cmd in COUNTED and not once:
                self.failed = True
                if cmd in ENDS or watched:
                    raise StopError
            return code

    return Engine


def ending(compose: Any, run_container: Any) -> Any:
    """Return podman-compose's function that runs a service's container; where one cannot start, all services end."""

    def services() -> list[Any]:
        return [task for task in asyncio.all_tasks() if task.get_name() in compose.container_names_by_service]

    def interrupt() -> None:
        compose.podman.interrupted = True
        for task in services():
            task.cancel()

    async def ran(*args: Any, **more: Any) -> Any:
        ours = asyncio.current_task()
        if ours in services():
            # In the place of podman-compose's own, which forgets it.
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupt)
        try:
            return await run_container(*args, **more)
        except StopError as why:
            compose.podman.failed = True
            if ours not in services():
                raise
            tell(why)
            for task in services():
                if task is not ours:
                    task.cancel()
            return 1

    return ran


def elsewhere(compose: Any) -> None:
    """Have files found in other directories: podman-compose goes into the first one's before it opens them."""
    read = compose._parse_compose_file

    def of_files() -> None:
        named = os.environ.get("COMPOSE_FILE", "").split(os.environ.get("COMPOSE_PATH_SEPARATOR", os.pathsep))
        given = compose.global_args.file or list(filter(None, named))
        compose.global_args.file = [name if name == "-" else str(Path(name).absolute()) for name in given]
        read()

    compose._parse_compose_file = of_files


def tell(why: StopError) -> None:
    """Tell the user what Podman has not told."""
    if why.args:
        print(f"docker compose: {why.args[0]}. Fix: {why.args[1]}", file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    """Do what Docker's command line asks for; return how it ended."""
    import podman_compose

    compose = podman_compose.podman_compose
    if all(hasattr(podman_compose, name) for name in REPLACED):
        podman_compose.container_to_gpu_res_args = reserved
        podman_compose.Podman = engine(podman_compose.Podman)
        podman_compose.check_dep_conditions = dependencies
        podman_compose.run_container = ending(compose, podman_compose.run_container)
        elsewhere(compose)
    else:
        print("docker compose: this image's podman-compose is not 1.3, and runs as it is", file=sys.stderr, flush=True)
    sys.argv = ["docker compose", "--in-pod=0", "--podman-path=/usr/local/bin/docker", *words]
    code: Any = 0
    try:
        podman_compose.main()
    except SystemExit as ended:
        code = ended.code
    except (StopError, asyncio.CancelledError) as why:
        tell(why) if isinstance(why, StopError) else None
        code = 1
    except KeyboardInterrupt:
        return 130
    except Exception as problem:
        if "--verbose" in words:
            raise
        fix = "docker compose config shows what is read; --verbose shows more"
        what = f"unknown service or key {problem}" if isinstance(problem, KeyError) else " ".join(str(problem).split())
        tell(StopError(what or type(problem).__name__, fix))
        code = 1
    podman: Any = getattr(compose, "podman", None)
    args: Any = getattr(compose, "global_args", None)
    if getattr(podman, "interrupted", False):
        return 130
    if not code and getattr(args, "abort_on_container_exit", False) and not args.exit_code_from:
        code = podman.first
    if not code and getattr(podman, "failed", False):
        code = 1
    if code == -1:  # it has shown its help, or found no file
        code = int(getattr(args, "command", None) not in (None, "help"))
    return code or 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
