# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The store of images that all users of a node share: what its lists say, and Podman's commands on it. Python 3.8.

Podman is not on the machine: it comes with an image, and runs in a container of it.
"""

from __future__ import annotations

import json
from pathlib import Path

#: What unpacking an image as root needs: mounting and entering layers, and giving files their owners and marks.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP", "SYS_ADMIN", "SYS_CHROOT")


def listed(store, kind):
    """Return what the store lists of ``images`` or ``layers``; a list that cannot be read has nothing."""
    try:
        found = json.loads((Path(store) / f"overlay-{kind}" / f"{kind}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def unreadable(store):
    """Return which list of the store is there and cannot be read, empty where there is none such."""
    for kind in ("images", "layers"):
        file = Path(store) / f"overlay-{kind}" / f"{kind}.json"
        try:
            if not isinstance(json.loads(file.read_text(encoding="utf-8")), list):
                return str(file)
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return str(file)
    return ""


def has(store, reference, name=""):
    """Tell whether the store has the image, and under this name, too, where one is given."""
    wanted = {reference, name} - {""}
    return any(wanted <= set(image.get("names") or ()) for image in listed(store, "images"))


def podman(store, tool, *words, registries=""):
    """Return the command that runs Podman on the store, in a container of the image ``tool``.

    ``registries`` is a file of the machine's /etc that says where images come from (containers-registries.conf(5)).
    """
    confined = ["--rm", "--network", "host", "--cap-drop", "ALL"]
    for name in CAPABILITIES:
        confined += ["--cap-add", name]
    for option in ("seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"):
        confined += ["--security-opt", option]
    mounts = ["--volume", f"{store}:{store}", "--volume", "/etc:/run/machine-etc:ro", "--tmpfs", "/run/podman-store"]
    login = Path("/root/.docker/config.json")
    if login.exists():
        mounts += ["--volume", f"{login}:/run/login.json:ro", "--env", "REGISTRY_AUTH_FILE=/run/login.json"]
    if registries:
        mounts += ["--env", f"CONTAINERS_REGISTRIES_CONF=/run/machine-{str(registries).lstrip('/')}"]
    return [
        "docker",
        "run",
        *confined,
        *mounts,
        tool,
        "podman",
        "--root",
        store,
        "--runroot",
        "/run/podman-store",
        *words,
    ]
