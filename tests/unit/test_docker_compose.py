"""docker compose in a job: podman-compose ends as Docker's would, and waits for what comes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import runpy
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from provision import content

IMAGE = content.ROOT / "roles/slurm_image/files/image"
sys.path.insert(0, str(IMAGE))
COMPOSE: dict[str, Any] = runpy.run_path(str(IMAGE / "compose.py"))
sys.path.remove(str(IMAGE))
WAITS: dict[str, Any] = vars(sys.modules["compose_waits"])
StopError = WAITS["StopError"]


class Podman:
    """podman-compose's, with containers that are there, and commands that fail."""

    def __init__(self, compose: Any, there: str = "", fails: dict[str, int] | None = None) -> None:
        self.compose, self.dry_run = compose, False
        self.are_there, self.fails = there, fails or {}
        self.ran: list[str] = []

    async def output(self, _: Any, cmd: str, words: list[str]) -> bytes:
        if "--filter=status=running" in words:
            return " ".join(name for name in self.are_there.split() if name != "ended").encode()
        return self.are_there.encode() if cmd == "ps" else b""

    async def run(self, _: Any, cmd: str, words: list[str], **more: Any) -> int:
        self.ran.append(" ".join([cmd, *words]))
        return self.fails.get(cmd, 0)


def project(there: str = "", fails: dict[str, int] | None = None, **args: Any) -> Any:
    """Return a project with the services a, b and ended."""
    names = ("a", "b", "ended")
    compose = types.SimpleNamespace(
        project_name="m",
        services={name: {} for name in names},
        containers=[{"name": name, "_service": name, "image": name} for name in names],
        container_names_by_service={name: [name] for name in names},
        global_args=argparse.Namespace(**args),
    )
    compose.container_by_name = {one["name"]: one for one in compose.containers}
    compose.podman = COMPOSE["engine"](Podman)(compose, there, fails)
    return compose


def ran(compose: Any, cmd: str, *words: str) -> Any:
    return asyncio.run(compose.podman.run([], cmd, list(words)))


@pytest.mark.parametrize("cmd", ["run", "create"])
def test_a_container_that_cannot_be_made_ends_all(cmd: str) -> None:
    compose = project(fails={cmd: 125})

    with pytest.raises(StopError):
        ran(compose, cmd, "--name=a", "nosuch:1")
    assert compose.podman.failed


def test_a_failed_build_ends_all() -> None:
    with pytest.raises(StopError):
        ran(project(fails={"build": 1}), "build", "-t", "a", ".")


def test_a_container_that_is_there_is_not_made_again() -> None:
    compose = project("a")

    assert ran(compose, "run", "--name=a", "image") == 0
    assert compose.podman.ran == []
    ran(compose, "run", "--name=b", "--requires=a", "image")
    assert compose.podman.ran == ["run --name=b image"]


def test_a_container_of_ones_own_ends_as_its_program_does() -> None:
    compose = project(fails={"run": 3})

    assert ran(compose, "run", "--name=a_tmp7", "image") == 3
    assert not compose.podman.failed


@pytest.mark.parametrize(("code", "failed"), [(0, False), (1, False), (137, False), (127, True), (125, True)])
def test_a_container_that_is_looked_on_may_end_as_it_likes_and_has_to_begin(code: int, failed: bool) -> None:
    compose = project("ended", {"start": code})

    try:
        ran(compose, "start", "-a", "ended")
    except StopError:
        assert failed
    assert compose.podman.failed == failed
    assert compose.podman.first == code


async def looked_on(compose: Any, **services: Any) -> list[Any]:
    """Look on services as podman-compose does, each a task of that name."""
    run_container = COMPOSE["ending"](compose, lambda service: service())
    tasks = [asyncio.create_task(run_container(service), name=name) for name, service in services.items()]
    return await asyncio.gather(*tasks, return_exceptions=True)


async def lasting() -> int:
    await asyncio.sleep(60)
    return 0


def test_where_one_service_cannot_start_all_end(capsys: pytest.CaptureFixture[str]) -> None:
    async def failing() -> None:
        await asyncio.sleep(0.01)
        raise StopError("b is unhealthy", "docker logs b")

    compose = project()
    ends = asyncio.run(looked_on(compose, a=lasting, b=failing))

    assert [type(end) for end in ends] == [asyncio.CancelledError, int]
    assert compose.podman.failed
    assert capsys.readouterr().err == "docker compose: b is unhealthy. Fix: docker logs b\n"


def test_what_the_user_ends_is_known_as_that() -> None:
    async def interrupting() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return await lasting()

    compose = project()
    ends = asyncio.run(looked_on(compose, a=lasting, b=interrupting))

    assert [type(end) for end in ends] == [asyncio.CancelledError] * 2
    assert compose.podman.interrupted


def test_what_runs_already_is_looked_on() -> None:
    compose = project("a", {"attach": 1})

    assert ran(compose, "start", "-a", "a") == 1
    assert compose.podman.ran == ["attach --no-stdin a"]
    assert not compose.podman.failed


@pytest.mark.parametrize(
    ("cmd", "there", "told"),
    [
        ("stop", "a", ["stop -t 10 a"]),
        ("stop", "", []),
        ("logs", "b", ["logs -t 10 b"]),
        ("kill", "a ended", ["kill -t 10 a"]),
        ("kill", "ended", []),
        ("rm", "a ended", ["rm -t 10 a ended"]),
    ],
)
def test_what_is_not_there_is_passed_over(cmd: str, there: str, told: list[str]) -> None:
    compose = project(there)

    ran(compose, cmd, "-t", "10", "a", "b", "ended")
    assert compose.podman.ran == told
    assert not compose.podman.failed


@pytest.mark.parametrize("cmd", ["start", "stop", "pull", "push", "restart", "kill"])
def test_what_has_failed_is_remembered(cmd: str) -> None:
    compose = project("a", {cmd: 125})

    assert ran(compose, cmd, "a") == 125
    assert compose.podman.failed


class Engine:
    """One container, as it is from one look to the next; asked for its health it answers so."""

    def __init__(
        self, *states: str, test: Any = ("CMD", "x"), healthy: str = "", code: int = 0, policy: str = ""
    ) -> None:
        self.states, self.healthy = list(states), list(healthy)
        check = {"Test": list(test), "Interval": 10_000_000, "Retries": 2} if test else None
        self.told = {"Config": {"Healthcheck": check}, "HostConfig": {"RestartPolicy": {"Name": policy}}}
        self.code = code

    async def output(self, _: Any, cmd: str, words: list[str]) -> bytes:
        if cmd == "healthcheck":
            if (self.healthy.pop(0) if len(self.healthy) > 1 else "".join(self.healthy)) != "y":
                raise subprocess.CalledProcessError(1, words)
            return b""
        status = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return json.dumps([self.told | {"State": {"Status": status, "ExitCode": self.code}}]).encode()


@pytest.mark.parametrize(
    ("wanted", "engine"),
    [
        ("running", Engine("created", "running")),
        ("running", Engine("exited", code=1)),
        ("stopped", Engine("running", "exited")),
        ("healthy", Engine("running", healthy="y")),
        ("healthy", Engine("running", healthy="ny")),
        ("healthy", Engine("exited", "running", healthy="y", policy="always")),
    ],
)
def test_what_another_service_needs_is_waited_for(wanted: str, engine: Engine) -> None:
    asyncio.run(WAITS["until"](engine, "a", wanted))


@pytest.mark.parametrize(
    ("wanted", "engine", "why"),
    [
        ("stopped", Engine("exited", code=3), "a ended with 3"),
        ("healthy", Engine("running", healthy="n"), "a is unhealthy after 0.02 s"),
        ("healthy", Engine("exited", code=1), "a ended with 1 before it was healthy"),
        ("healthy", Engine("running", test=None), "a has no healthcheck"),
        ("healthy", Engine("running", test=["NONE"]), "a has no healthcheck"),
        ("healthy", Engine("exited", policy="always"), "a is unhealthy"),
    ],
)
def test_what_will_not_come_is_not_waited_for(wanted: str, engine: Engine, why: str) -> None:
    # A container that is started again and again never stops to be waited for, but for its patience.
    if "exited" in engine.states and engine.told["HostConfig"]["RestartPolicy"]["Name"]:
        engine.states = ["restarting"]

    with pytest.raises(StopError, match=why):
        asyncio.run(WAITS["until"](engine, "a", wanted))


def module() -> Any:
    """Return a stand-in of podman-compose."""
    made = types.SimpleNamespace()

    class Compose:
        global_args = argparse.Namespace(command="up")

        def _parse_compose_file(self) -> None:
            made.read = self.global_args.file

    made.podman_compose = Compose()
    return made


def whole() -> Any:
    """Return podman-compose with all that is put in its place."""
    made = module()
    for name in COMPOSE["REPLACED"]:
        setattr(made, name, getattr(made, name, None))
    made.Podman = Podman
    return made


@pytest.mark.parametrize("named", [{"file": ["sub/a.yaml", "-"]}, {"file": [], "COMPOSE_FILE": "sub/a.yaml:-"}])
def test_a_compose_file_may_be_in_another_directory(
    named: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPOSE_FILE", named.get("COMPOSE_FILE", ""))
    made = module()
    COMPOSE["elsewhere"](made.podman_compose)
    made.podman_compose.global_args = argparse.Namespace(command="up", file=named["file"])

    made.podman_compose._parse_compose_file()
    assert made.read == [f"{tmp_path}/sub/a.yaml", "-"]


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (SystemExit(0), 0),
        (SystemExit(3), 3),
        (SystemExit(-1), 1),
        (StopError("a is unhealthy", "docker logs a"), 1),
        (OSError("Dockerfile not found in x"), 1),
        (KeyError("frob"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_failed_ends_with_a_line_and_not_with_0(
    ends: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = whole()

    def main() -> None:
        raise ends

    made.main = main
    monkeypatch.setitem(sys.modules, "podman_compose", made)
    monkeypatch.setattr(sys, "argv", [])

    assert COMPOSE["main"](["up"]) == code
    said = capsys.readouterr().err
    assert said.count("\n") == (0 if isinstance(ends, SystemExit | KeyboardInterrupt) else 1)
    assert "Traceback" not in said


def test_another_podman_compose_runs_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = whole()
    del made.run_container
    made.main = lambda: None
    monkeypatch.setitem(sys.modules, "podman_compose", made)
    monkeypatch.setattr(sys, "argv", [])

    assert COMPOSE["main"](["up"]) == 0
    assert made.Podman is Podman
    assert capsys.readouterr().err == "docker compose: this image's podman-compose is not 1.3, and runs as it is\n"


@pytest.mark.parametrize(("known", "code"), [({"failed": True}, 1), ({"failed": True, "interrupted": True}, 130)])
def test_what_podman_could_not_do_is_the_end_of_a_command_that_went_on(
    known: dict[str, bool], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = whole()
    monkeypatch.setitem(sys.modules, "podman_compose", made)
    monkeypatch.setattr(sys, "argv", [])

    def main() -> None:
        made.podman_compose.podman = types.SimpleNamespace(**known)

    made.main = main
    assert COMPOSE["main"](["stop"]) == code
