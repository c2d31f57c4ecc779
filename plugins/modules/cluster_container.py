#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have one long-running container of exactly these settings, started at boot."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: cluster_container
short_description: Have a long-running container of exactly these settings
description:
  - Starts a container with the engine's own command and writes its settings into a label. A container whose label says
    the same is left alone, whatever the engine has filled in by itself; any other is replaced.
  - Nothing is granted that is not listed. All containers use the machine's network.
  - A machine that is itself a container may lack CAP_SYS_RESOURCE; no container on it may then have it, nor a limit
    above the machine's own. There, both are left out.
  - It can what C(community.docker.docker_container) 4.8 cannot, which is to unmask the system's paths
    (C(systempaths=unconfined)), and asks for no Python library on the machine.
options:
  directories:
    type: list
    elements: dict
    default: []
    description: Directories of the machine that it keeps things in, made where they are missing.
    suboptions:
      path: {type: path, required: true, description: Where.}
      mode: {type: str, required: true, description: Mode.}
      owner: {type: str, required: true, description: Number of owner and group.}
  name: {type: str, required: true, description: Name of the container.}
  image: {type: str, required: true, description: Image by digest; pulled where the machine lacks it.}
  command: {type: list, elements: str, required: true, description: What it runs.}
  user: {type: str, required: true, description: 'Numbers of user and group, as 64030:64030.'}
  read_only: {type: bool, default: true, description: Whether the image's files cannot be written.}
  capabilities: {type: list, elements: str, default: [], description: Capabilities it has; all others are dropped.}
  security: {type: list, elements: str, default: [], description: Security options.}
  tmpfs: {type: list, elements: str, default: [], description: Directories in memory.}
  mounts: {type: list, elements: str, default: [], description: 'Directories, as source:target[:options].'}
  labels: {type: dict, default: {}, description: Labels; a change of one replaces the container.}
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
"""

RETURN = """
raised: {type: bool, returned: always, description: Whether the machine allows limits above its own.}
action: {type: str, returned: always, description: 'What was done: nothing, start, create, replace.'}
"""


LABEL = "clusterctl.settings"
SYS_RESOURCE = 24  # its bit in a set of capabilities: capabilities(7)
_OPTIONS = (
    ("capabilities", "--cap-add"),
    ("security", "--security-opt"),
    ("tmpfs", "--tmpfs"),
    ("mounts", "--volume"),
    ("ulimits", "--ulimit"),
    ("device_rules", "--device-cgroup-rule"),
)


def can_raise_limits(status):
    """Tell from /proc/1/status whether anything on this machine may have CAP_SYS_RESOURCE."""
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)$", status, re.M)
    return bool(found) and bool(int(found[1], 16) >> SYS_RESOURCE & 1)


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
    """Return the words of ``docker run`` for these settings, without the label that repeats them."""
    words = ["--name", params["name"], "--network", "host", "--restart", "unless-stopped"]
    words += ["--user", params["user"], "--cap-drop", "ALL"]
    if params["read_only"]:
        words.append("--read-only")
    for option in ("pid", "ipc", "cgroupns"):
        if params[option]:
            words += [f"--{option}", params[option]]
    for key, option in _OPTIONS:
        # In one order, whatever order the caller has: none of these options depends on it.
        for value in sorted(params[key]):
            words += [option, value]
    for key, value in sorted(params["labels"].items()):
        words += ["--label", f"{key}={value}"]
    return [*words, *gpus, params["image"], *params["command"]]


def needed(found, settings):
    """Return what to do, from what the engine says about the container (None: there is none)."""
    if found is None:
        return "create"
    if (found["Config"].get("Labels") or {}).get(LABEL) != settings:
        return "replace"
    # One that keeps failing is started again by the engine; it is for verification to say so.
    return "nothing" if found["State"]["Running"] or found["State"]["Restarting"] else "start"


def directories(module):
    """Have the directories, and tell whether something had to be done for it."""
    changed = False
    for item in module.params["directories"]:
        path = Path(item["path"])
        if not path.is_dir():
            changed = True
            if module.check_mode:
                continue
            path.mkdir(parents=True)
        changed = module.set_owner_if_different(str(path), item["owner"], changed)
        changed = module.set_group_if_different(str(path), item["owner"], changed)
        changed = module.set_mode_if_different(str(path), item["mode"], changed)
    return changed


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
            "directories": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "mode": {"type": "str", "required": True},
                    "owner": {"type": "str", "required": True},
                },
            },
            **{key: dict(listed) for key, _ in _OPTIONS},
            "labels": {"type": "dict", "default": {}},
            "gpus": dict(listed),
            **{key: {"type": "str", "default": ""} for key in ("pid", "ipc", "cgroupns")},
        },
        supports_check_mode=True,
    )

    def docker(*words):
        code, output, problem = module.run_command(["docker", *words])
        if code:
            module.fail_json(msg=f"docker {words[0]} {module.params['name']}: {problem.strip() or output.strip()}")
        return output

    def gpus():
        names = module.params["gpus"]
        lacking = [what for path, what in _FOR_GPUS if not path.exists()]
        if not names or (module.check_mode and lacking):
            return []  # a rehearsal on a clean machine has installed neither
        if lacking:
            module.fail_json(
                msg=f"{module.params['name']} is to have {', '.join(names)}, and the machine has no {lacking[0]}. "
                "Fix: clusterctl provision gpu; or, if the machine has no GPU, correct node_gres"
            )
        version = docker("version", "--format", "{{.Server.Version}}").strip()
        return gpu_words(names, version, _DRIVER.read_text(encoding="ascii").strip())

    name, image = module.params["name"], module.params["image"]
    found = None
    # A rehearsal on a clean machine has installed no engine, and may not know the image yet.
    if not (module.check_mode and module.get_bin_path("docker") is None):
        code, shown, _ = module.run_command(["docker", "container", "inspect", name])
        found = json.loads(shown)[0] if code == 0 else None
    raised = can_raise_limits(Path("/proc/1/status").read_text(encoding="ascii"))
    if not raised:
        module.params["ulimits"] = []
        module.params["capabilities"] = [word for word in module.params["capabilities"] if word != "SYS_RESOURCE"]
    words = arguments(module.params, gpus())
    settings = json.dumps(words)
    made = directories(module)
    action = needed(found, settings)
    if action != "nothing" and not module.check_mode:
        if action in ("create", "replace"):
            if module.run_command(["docker", "image", "inspect", image])[0]:
                docker("pull", "--quiet", image)
            if found:
                docker("rm", "--force", name)
            docker("run", "--detach", "--label", f"{LABEL}={settings}", *words)
        else:
            docker("start", name)
    before = ((found or {}).get("Config", {}).get("Labels") or {}).get(LABEL, "[]")
    diff = {side: "\n".join(json.loads(text)) + "\n" for side, text in (("before", before), ("after", settings))}
    module.exit_json(
        changed=made or action != "nothing",
        action=action,
        raised=raised,
        diff=diff if action in ("create", "replace") else {},
    )


if __name__ == "__main__":
    main()
