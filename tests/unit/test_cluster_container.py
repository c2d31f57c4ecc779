"""The words with which a container is started, and how it takes the place of another."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest
from machines import act, plugin

from provision.judge import containers
from provision.model import managed

plugin("plugins/module_utils/image_registry.py", "ansible.module_utils.image_registry")
plugin("plugins/module_utils/image_sources.py", "ansible.module_utils.image_sources")
module = plugin("plugins/modules/cluster_container.py")
action = plugin("plugins/action/cluster_container.py")

ALL = ["nvidia.com/gpu=all"]


def params(**other: Any) -> dict[str, Any]:
    lists = ("capabilities", "security", "tmpfs", "mounts", "ulimits", "device_rules")
    texts = {"pid": "host", "ipc": "", "cgroupns": "", "log_driver": ""}
    return {
        **{key: [] for key in lists}, **texts, "name": "slurmd", "image": "slurm@sha256:0", "command": ["slurmd", "-D"],
        "stop_timeout": 60, "user": "0:0", "read_only": False, "labels": {"a": "b"}, **other,
    }  # fmt: skip


def test_a_container_without_gpus_is_started_with_the_words_of_old() -> None:
    expected = (
        "--name slurmd --network host --restart unless-stopped --stop-timeout 60 --user 0:0 --cap-drop ALL --pid host "
        "--label a=b slurm@sha256:0 slurmd -D"
    )

    assert " ".join(module.arguments(params(), module.gpu_words([], "28.3.0", "580.95.05"))) == expected


@pytest.mark.parametrize("version", ["25.0.0", "26.1.5+dfsg1", "29.0.1"])
def test_an_engine_that_knows_devices_by_name_is_told_them(version: str) -> None:
    assert module.gpu_words(ALL, version, "580.95.05")[2:] == ["--device", "nvidia.com/gpu=all"]


@pytest.mark.parametrize("version", ["20.10.24+dfsg1", "24.0.7"])
def test_an_older_engine_starts_it_with_the_runtime_that_does(version: str) -> None:
    assert module.gpu_words(ALL, version, "580.95.05")[2:] == [
        "--runtime", "nvidia", "--env", "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all",
    ]  # fmt: skip


def test_image_and_command_stay_last() -> None:
    words = module.arguments(params(), module.gpu_words(ALL, "28.3.0", "580.95.05"))

    assert words[-3:] == ["slurm@sha256:0", "slurmd", "-D"]


class Killed(BaseException):
    """The module was ended by SIGKILL: nothing of it goes on."""


class FailedError(Exception):
    """The module ended with fail_json."""


class Docker:
    """An engine that keeps Docker's rules for names and states; it can end its caller after some calls."""

    def __init__(self, *, unstartable: str = "-") -> None:
        self.containers: dict[str, dict[str, Any]] = {}
        self.unstartable, self.left, self.calls = unstartable, -1, []  # type: ignore[var-annotated]
        self.params = {"name": "slurmctld", "image": "slurm@sha256:0", "stop_timeout": 60}

    def run_command(self, words: list[str]) -> tuple[int, str, str]:
        assert words[0] == "timeout"
        assert int(words[2]) > 0
        return self.docker(*words[4:])

    def fail_json(self, msg: str) -> None:
        raise FailedError(msg)

    def docker(self, verb: str, *words: str) -> tuple[int, str, str]:
        if self.left == 0:
            raise Killed
        self.left -= 1
        self.calls.append(" ".join((verb, *words)))
        name = words[-1]
        if verb == "image":
            return 0, "", ""
        if verb == "create":
            name = words[words.index("--name") + 1]
            if name in self.containers:
                return 1, "", "name in use"
            self.containers[name] = {"running": False, "paused": False, "words": words}
            return 0, "", ""
        if verb == "rename":
            if words[1] in self.containers or words[0] not in self.containers:
                return 1, "", "name in use, or none"
            self.containers[words[1]] = self.containers.pop(words[0])
            return 0, "", ""
        if name not in self.containers:
            return 1, "", "No such container"
        found = self.containers[name]
        if verb == "container":
            return 0, module.json.dumps([described(found)]), ""
        if verb == "start":
            if self.unstartable in found["words"]:
                return 1, "", "OCI runtime create failed"
            found["running"] = True
        elif verb == "unpause":
            assert found["paused"], "it is not paused"
            found["paused"] = False
        elif verb == "stop":
            assert not found["paused"], "a paused one cannot end"
            found["running"] = False
        elif verb == "rm":
            assert not found["running"], "a running container is killed"
            del self.containers[name]
        else:
            raise AssertionError(verb)
        assert sum(one["running"] for one in self.containers.values()) <= 1, "two daemons at once"
        return 0, "", ""

    def converge(self, image: str) -> str:
        """Do what action plugin and module do, and return the action."""
        wanted = params(name="slurmctld", image=image, pid="")
        want = managed.container(wanted)
        told = {name: described(found) for name, found in self.containers.items()}
        action = containers.needed(want, {"found": told})
        if action != "nothing":
            module.carry_out(module.Engine(self), action, module.arguments(wanted))
        return action


def described(made: dict[str, Any]) -> dict[str, Any]:
    """Return what an engine says of a container that was made with these words; the defaults are Docker's."""
    words, state = made["words"], {"Running": made["running"], "Paused": made["paused"], "Restarting": False}
    image = words[words.index("slurmd") - 1] if "slurmd" in words else ""
    return {
        "Path": "slurmd", "Args": ["-D"], "State": state, "Mounts": [],
        "Config": {"Image": image, "User": "0:0", "Labels": {"a": "b"}, "StopTimeout": 60},
        "HostConfig": {"NetworkMode": "host", "RestartPolicy": {"Name": "unless-stopped"}, "ReadonlyRootfs": False,
                       "PidMode": "", "IpcMode": "private", "CapDrop": ["ALL"]},
    }  # fmt: skip


def running(docker: Docker) -> list[tuple[str, bool]]:
    return [
        (name, "new" in container["words"]) for name, container in docker.containers.items() if container["running"]
    ]


def test_a_container_is_asked_to_end_before_another_takes_its_place_and_the_next_run_does_nothing() -> None:
    docker = Docker()

    assert docker.converge("old") == "create"
    assert docker.converge("new") == "replace"
    assert docker.converge("new") == "nothing"
    assert list(docker.containers) == ["slurmctld"]
    assert "stop -t 60 slurmctld" in docker.calls
    assert not any(re.match("rm --force slurmctld$|kill", call) for call in docker.calls)


def test_a_replacement_that_is_killed_anywhere_is_completed_by_the_next_run() -> None:
    for calls in count():
        docker = Docker()
        docker.converge("old")
        docker.left = calls
        try:
            docker.converge("new")
        except Killed:
            docker.left = -1
            docker.converge("new")
            assert running(docker) == [("slurmctld", True)], calls
        else:
            break
    assert calls > 8, "it was killed between all of its steps"


def test_what_the_engine_refuses_to_make_leaves_the_old_container_running() -> None:
    docker = Docker()
    docker.converge("old")
    docker.containers["slurmctld.new"] = {"running": False, "paused": False, "words": ()}
    original = docker.docker
    docker.docker = lambda verb, *words: (1, "", "bad mount") if verb == "create" else original(verb, *words)  # type: ignore[method-assign]

    with pytest.raises(FailedError, match="bad mount"):
        docker.converge("new")
    assert running(docker) == [("slurmctld", False)]


def test_a_container_that_cannot_be_started_gives_way_to_the_old_one() -> None:
    docker = Docker(unstartable="new")
    docker.converge("old")

    with pytest.raises(FailedError, match=r"OCI runtime.*of before runs again"):
        docker.converge("new")
    assert running(docker) == [("slurmctld", False)]


def test_a_container_that_is_paused_goes_on_or_is_asked_to_end_like_any_other() -> None:
    docker = Docker()
    docker.converge("old")

    docker.containers["slurmctld"]["paused"] = True
    assert docker.converge("old") == "unpause"
    docker.containers["slurmctld"]["paused"] = True
    assert docker.converge("new") == "replace"
    assert running(docker) == [("slurmctld", True)]


def made(told: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what the action answers where the engine says this of slurmd, and what its module was told to do."""
    done = []

    def machine(module_args: dict[str, Any], module_name: str = "", task_vars: Any = None) -> dict[str, Any]:
        if module_name == "machine_facts":
            state = {"paths": {}, "packages": {}, "services": {}, "manager": {}, "containers": told}
            return {"machine": {"state": state}, "changed": False}
        done.append(module_args)
        return {"changed": True}

    return act(action, params(), machine), done


def test_a_container_that_is_not_there_is_made_without_a_word_about_differences() -> None:
    found, done = made({"found": {}, "raised": True})

    assert (found["changed"], found["action"], found["differences"]) == (True, "create", [])
    assert [(one["action"], one["raised"]) for one in done] == [("create", True)]


def test_an_engine_that_is_silent_changes_nothing() -> None:
    found, done = made(None)

    assert (found["failed"], done) == (True, [])
    assert "the container engine did not answer in time" in found["msg"]
