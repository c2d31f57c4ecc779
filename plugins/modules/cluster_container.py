#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ensure one long-running container of exactly these settings, started at boot.

Why not C(community.docker.docker_container): its release 4.8 cannot unmask the system's paths, without which no job has
containers of its own, kills what it replaces before the new one is known to start, and wants a Python library on the
machine. What this saves is a daemon of Slurm's being down: what the engine refuses is refused while the old container
runs, the old one is asked to end and given time for it, and where the new one does not start, the old one runs again.
Measured (November 2026, Docker 20.10, by the engine's events, in turn on a busy computer): between the end of one
container and the start of the next as long, 0.5 to 0.9 s beside 0.7 to 1.0 s; with a command that does not exist the
old one ran again after 2.8 s, and with the other module none did, until somebody came.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ansible.module_utils import image_sources
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import bounded
from ansible.module_utils.telling import Layers, follow

DOCUMENTATION = """
module: cluster_container
short_description: Ensure a long-running container of exactly these settings
description:
  - Compares a container with what the engine says of it (C(docker container inspect)), in its action plugin, by the
    same judge that C(clusterctl verify) has; this module then does what is needed. What the engine has filled in by
    itself is no difference. One that was paused goes on, one that was stopped is started, any other is replaced.
  - The new container is made before the old one is stopped, and the old one is asked to end and given time for it
    (C(stop_timeout)), never killed outright. If the new one cannot be started, the old one runs again.
  - Nothing is granted that is not listed. All containers use the machine's network.
  - A machine that is itself a container may lack CAP_SYS_RESOURCE; no container on it may then have it, nor a limit
    above the machine's own. There, both are left out.
options:
  name: {type: str, required: true, description: Name of the container.}
  image: {type: str, required: true, description: Image by digest; pulled where the machine lacks it.}
  command: {type: list, elements: str, required: true, description: What it runs.}
  user: {type: str, required: true, description: 'Numbers of user and group, as 64030:64030.'}
  read_only: {type: bool, default: true, description: Whether the image's files cannot be written.}
  capabilities: {type: list, elements: str, default: [], description: Capabilities it has; all others are dropped.}
  security: {type: list, elements: str, default: [], description: Security options.}
  tmpfs: {type: list, elements: str, default: [], description: Directories in memory.}
  mounts: {type: list, elements: str, default: [], description: 'Directories, as source:target[:options].'}
  labels:
    type: dict
    default: {}
    description: What the engine does not know of a container and a change of which replaces it, as labels.
  ulimits: {type: list, elements: str, default: [], description: 'Limits, as memlock=-1:-1.'}
  gpus:
    type: list
    elements: str
    default: []
    description:
      - GPUs by their names in CDI, as C(nvidia.com/gpu=all), with the driver's libraries and programs. Docker from 25.0
        on knows such names; an older one starts the container with NVIDIA's runtime, which does.
      - The container is replaced when the driver changes, whose libraries it holds.
  device_rules: {type: list, elements: str, default: [], description: Devices it may use, in the kernel's words.}
  pid: {type: str, default: "", description: Whose processes it sees; empty for its own.}
  ipc: {type: str, default: "", description: Whose shared memory it uses; empty for its own.}
  cgroupns: {type: str, default: "", description: Whose control groups it sees; empty for the engine's default.}
  log_driver:
    type: str
    default: ""
    description: Where what it prints goes, under its name; empty for the engine's own choice.
  stop_timeout:
    type: int
    default: 0
    description: >-
      Seconds that it may take to end whenever somebody stops it, and the engine itself where containers do not outlive
      it; 0 for the engine's own, 10. One that is replaced has a minute in any case.
  known:
    type: bool
    default: true
    description: Whether the controller has said how it has to be; if not, the task fails, and what runs stays.
  action:
    type: str
    choices: [start, unpause, create, replace]
    description: What is to be done. Found out by the action plugin of this name.
  raised: {type: bool, default: false, description: Whether the machine allows limits above its own; found out as well.}
"""

RETURN = """
action: {type: str, returned: always, description: 'What was done: nothing, start, unpause, create, replace.'}
"""


#: Seconds that a container which is replaced may take to end.
REPLACED = 60
#: Seconds that an image may take to come from the registry: some hundred MB over a slow line.
PULL_LIMIT = 1800
_OPTIONS = (
    ("capabilities", "--cap-add"),
    ("security", "--security-opt"),
    ("tmpfs", "--tmpfs"),
    ("mounts", "--volume"),
    ("ulimits", "--ulimit"),
    ("device_rules", "--device-cgroup-rule"),
)


#: The first release of the engine that knows devices by name: Docker's release notes.
CDI_SINCE = 25
_DRIVER = Path("/sys/module/nvidia/version")
_FOR_GPUS = ((_DRIVER, "NVIDIA driver loaded"), (Path("/usr/bin/nvidia-cdi-hook"), "NVIDIA container toolkit"))


def gpu_words(names, version, driver):
    """Return the words of ``docker run`` that give a container these GPUs, for a release of the engine."""
    if not names:
        return []
    words = ["--label", f"clusterctl.nvidia_driver={driver}"]
    found = re.match(r"\d+", version)
    if found and int(found[0]) >= CDI_SINCE:
        return words + [word for name in sorted(names) for word in ("--device", name)]
    return [*words, "--runtime", "nvidia", "--env", f"NVIDIA_VISIBLE_DEVICES={','.join(sorted(names))}"]


def arguments(params, gpus=()):
    """Return the words of ``docker run`` for these settings."""
    words = ["--name", params["name"], "--network", "host", "--restart", "unless-stopped"]
    words += ["--stop-timeout", str(params["stop_timeout"])] if params["stop_timeout"] else []
    words += ["--user", params["user"], "--cap-drop", "ALL"]
    if params["read_only"]:
        words.append("--read-only")
    for option in ("pid", "ipc", "cgroupns"):
        if params[option]:
            words += [f"--{option}", params[option]]
    if params["log_driver"]:
        words += ["--log-driver", params["log_driver"], "--log-opt", "tag={{.Name}}"]
    for key, option in _OPTIONS:
        # In one order, whatever order the caller has: none of these options depends on it.
        for value in sorted(params[key]):
            words += [option, value]
    for key, value in sorted(params["labels"].items()):
        words += ["--label", f"{key}={value}"]
    return [*words, *gpus, params["image"], *params["command"]]


class Engine:
    """The engine's own command. Every call has a limit in seconds; one that fails ends the module."""

    def __init__(self, module):
        self.module = module

    def attempt(self, *words, limit=120):
        """Return the exit code and what was printed."""
        code, output, problem = self.module.run_command(bounded(["docker", *words], limit))
        if code == 124:
            problem += f" no answer within {limit} s"
        return code, output if code == 0 else problem.strip() or output.strip()

    def __call__(self, *words, limit=120):
        """Return what was printed."""
        code, told = self.attempt(*words, limit=limit)
        if code:
            self.module.fail_json(msg=f"docker {words[0]} {self.module.params['name']}: {told}")
        return told

    def inspect(self, name):
        """Return what the engine says about a container, None where it has none of this name."""
        code, told = self.attempt("container", "inspect", name)
        return json.loads(told)[0] if code == 0 else None


def carry_out(docker, action, words):
    """Do what is needed. ``words`` are those of ``docker run``, with the container's name and image among them."""
    params = docker.module.params
    name, image = params["name"], params["image"]
    if action in ("create", "replace") and docker.attempt("image", "inspect", image)[0]:
        pull(docker, image)
    if action == "replace":
        replace(docker, name, words, params["stop_timeout"] or REPLACED)
    elif action == "unpause":
        docker("unpause", name)
    else:
        if action == "create":
            create(docker, name, words)
        docker("start", name)
        remove(docker, f"{name}.new", f"{name}.old")


def pull(docker, image):
    """Bring an image from the registry, and tell how many of its layers have come.

    Docker knows mirrors of its makers' registry alone. So the mirror is asked by its own name first, and the registry
    for the manifest that gives the image the name that is declared; of the rest it brings what the mirror did not.
    """
    what = f"image {image.rpartition('/')[2].partition('@')[0]}: pull"
    if mirror := image_sources.near(image):
        come, _ = follow(bounded(["docker", "pull", mirror], PULL_LIMIT), Layers(), what, environment={"LC_ALL": "C"})
    code, told = follow(bounded(["docker", "pull", image], PULL_LIMIT), Layers(), what, environment={"LC_ALL": "C"})
    if code == 124:
        told += f" no answer within {PULL_LIMIT} s"
    if code:
        docker.module.fail_json(msg=f"docker pull {docker.module.params['name']}: {told.strip()[-2000:]}")
    if mirror and come == 0:
        docker.attempt("image", "rm", mirror)  # its second name


def create(docker, name, words):
    """Make a container, not started, that is called ``name`` whatever ``words`` say."""
    at = words.index("--name") + 1
    docker("create", *words[:at], name, *words[at + 1 :])


def replace(docker, name, words, stop_timeout):
    """Put a new container in the place of one that exists.

    Whatever ends this in the middle leaves something that the next run completes, and never two that run.
    """
    new, old = f"{name}.new", f"{name}.old"
    remove(docker, new, old)
    create(docker, new, words)  # what the engine refuses is refused here, while the old one runs
    if (docker.inspect(name) or {}).get("State", {}).get("Paused"):
        docker("unpause", name)  # one that is paused cannot be asked to end
    docker("stop", "-t", str(stop_timeout), name, limit=stop_timeout + 60)
    docker("rename", name, old)
    docker("rename", new, name)
    code, told = docker.attempt("start", name)
    if code:
        # It never ran, so it cannot have changed what the old one keeps on disk.
        docker("rm", "--force", name)
        docker("rename", old, name)
        docker("start", name)
        docker.module.fail_json(msg=f"docker start {name}: {told}. The container of before runs again")
    docker("rm", old)


def remove(docker, *names):
    """Remove what an interrupted replacement left; nothing of it runs."""
    for name in names:
        if docker.inspect(name):
            docker("rm", "--force", name)


def main():
    """Run the module."""
    listed = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "image": {"type": "str", "required": True},
            "command": {"type": "list", "elements": "str", "required": True},
            "user": {"type": "str", "required": True},
            "read_only": {"type": "bool", "default": True},
            **{key: dict(listed) for key, _ in _OPTIONS},
            "labels": {"type": "dict", "default": {}},
            "gpus": dict(listed),
            **{key: {"type": "str", "default": ""} for key in ("pid", "ipc", "cgroupns")},
            "log_driver": {"type": "str", "default": ""},
            "stop_timeout": {"type": "int", "default": 0},
            "known": {"type": "bool", "default": True},
            "action": {"type": "str", "choices": ["start", "unpause", "create", "replace"]},
            "raised": {"type": "bool", "default": False},
        },
    )
    action = module.params["action"]
    if action is None:
        module.fail_json(msg="what is to be done is found out by the action plugin cluster_container")
    docker = Engine(module)
    if not module.params["raised"]:
        module.params["ulimits"] = []
        module.params["capabilities"] = [word for word in module.params["capabilities"] if word != "SYS_RESOURCE"]

    def gpus():
        names = module.params["gpus"]
        if not names:
            return []
        if lacking := [what for path, what in _FOR_GPUS if not path.exists()]:
            module.fail_json(
                msg=f"{module.params['name']} is to have {', '.join(names)}, and the machine has no {lacking[0]}. "
                "Fix: clusterctl provision gpu; or, if the machine has no GPU, correct node_gres"
            )
        version = docker("version", "--format", "{{.Server.Version}}").strip()
        return gpu_words(names, version, _DRIVER.read_text(encoding="ascii").strip())

    carry_out(docker, action, arguments(module.params, gpus()))
    module.exit_json(changed=True, action=action)


if __name__ == "__main__":
    main()
