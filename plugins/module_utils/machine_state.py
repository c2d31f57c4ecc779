# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""How what roles manage stands on a machine: files, packages, services. Reads only. Standard library only, Python 3.8.

Ages are seconds before now, so that nobody compares this machine's clock with another's.
"""

from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
import re
import shutil
import stat
import time
from pathlib import Path

from ansible.module_utils import hosts_text, machine_mounts, openpgp_keys, systemd_units
from ansible.module_utils.machine_commands import printed
from ansible.module_utils.machine_commands import run as command_run
from ansible.module_utils.machine_hardware import read

#: A file that roles manage is a few pages; of a larger one nothing but its size is compared.
MAX_FILE = 16 * 2**20

#: What is asked of systemd about each service (systemd's names, org.freedesktop.systemd1(5)).
PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "NeedDaemonReload",
    "ActiveEnterTimestampMonotonic",
)


def name_of(lookup, number):
    """Return the name behind a uid or gid, or the number."""
    try:
        return lookup(number)[0]
    except KeyError:
        return str(number)


def _kind(mode):
    for kind, test in (("file", stat.S_ISREG), ("directory", stat.S_ISDIR), ("link", stat.S_ISLNK)):
        if test(mode):
            return kind
    return "other"


def path_state(root, path, now, text_limit=0, content=True):
    """Return what is at a path: ``kind`` (``absent``, ``file``, ``directory``, ``link``, ``other``), and what it has.

    ``sha256`` is that of a file's content, ``text`` the content itself where it is at most ``text_limit`` bytes,
    ``fingerprints`` those of the keys in an armoured file of public keys. Without ``content`` no file is read.
    """
    place = Path(root, path.lstrip("/"))
    try:
        found = place.lstat()
    except OSError as error:
        return {"kind": "absent"} if isinstance(error, FileNotFoundError) else {"error": str(error.strerror)}
    state = {
        "kind": _kind(found.st_mode),
        "mode": format(stat.S_IMODE(found.st_mode), "04o"),
        "owner": name_of(pwd.getpwuid, found.st_uid),
        "group": name_of(grp.getgrgid, found.st_gid),
        "uid": found.st_uid,
        "gid": found.st_gid,
        "age": round(now - found.st_mtime, 3),
    }
    try:
        if state["kind"] == "link":
            state["target"] = os.readlink(place)  # noqa: PTH115 - Python 3.8
        elif content and state["kind"] == "file" and found.st_size <= MAX_FILE:
            found_bytes = place.read_bytes()
            state["sha256"] = hashlib.sha256(found_bytes).hexdigest()
            if keys := openpgp_keys.read(found_bytes):
                state["fingerprints"] = keys
            if len(found_bytes) <= text_limit:
                state["text"] = found_bytes.decode("utf-8", "replace")
    except OSError as error:
        return {"error": str(error.strerror)}
    return state


def moment():
    """Return now by the clock on the wall, which files go by, and by the kernel's, which systemd goes by.

    What is compared by age must have its age of the same moment: a slow machine lets seconds pass between questions.
    """
    return time.time(), time.clock_gettime(time.CLOCK_MONOTONIC)


def paths(root, asked, texts=(), contents=(), now=None):
    """Return the state of each path; only those in ``contents`` and ``texts`` are read, these told up to 64 KiB."""
    now, read = (now or moment())[0], {*texts, *contents}
    return {path: path_state(root, path, now, 65536 if path in texts else 0, path in read) for path in asked}


def packages(names, patience=1, run=None):
    """Return version and hold of each package that is installed, asked of dpkg; None where it does not answer."""
    run = run or printed
    # A machine without dpkg has none of them, and preflight says that its system is none that is served.
    if not names or not shutil.which("dpkg-query"):
        return {}
    answer = run(
        ["dpkg-query", "-W", "-f=${Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\n", *names],
        10 * patience,
    )
    if answer is None:
        return None
    rows = [line.split("\t") for line in answer.splitlines()]
    return {row[0]: {"version": row[1], "held": row[2] == "hold"} for row in rows if row[3:] == ["installed"]}


def services(names, patience=1, run=None, now=None):
    """Return what systemd says of each service, with ``age``: seconds since it was started. None: it said nothing.

    ``loaded_age`` is how long ago systemd last read its units, so that a younger unit file is one it has not read.
    """
    run = run or printed
    if not names:
        return {}
    wanted = [f"--property={','.join(PROPERTIES)}", *(f"{name}.service" for name in names)]
    answer = run(["systemctl", "show", *wanted], 10 * patience)
    loaded = run(["systemctl", "show", systemd_units.READ, "--value"], 10 * patience)
    if not answer or loaded is None:
        return None
    uptime = (now or moment())[1]
    last = systemd_units.last_read(loaded)
    found = {}
    for name, block in zip(names, answer.strip().split("\n\n")):  # noqa: B905 - Python 3.8
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        entered = int(values.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
        found[name] = {
            "load": values.get("LoadState", ""),
            "active": values.get("ActiveState", ""),
            "sub": values.get("SubState", ""),
            "enabled": values.get("UnitFileState", ""),
            "reload": values.get("NeedDaemonReload") == "yes",
            "age": round(uptime - entered, 3),
            "loaded_age": round(uptime - last, 3),
        }
    return found


def manager(names, patience=1, run=None):
    """Return systemd's own settings of these names, for example DefaultLimitMEMLOCK. None: it said nothing."""
    if not names:
        return {}
    answer = (run or printed)(["systemctl", "show", f"--property={','.join(names)}"], 10 * patience)
    return dict(line.split("=", 1) for line in answer.splitlines() if "=" in line) if answer else None


#: What of the engine's words on a container anybody compares.
_TOLD = ("Path", "Args", "Image", "RestartCount", "State", "HostConfig", "Mounts")
_CONFIG = ("Image", "User", "Labels", "Env", "StopTimeout")
#: The bit of CAP_SYS_RESOURCE in a set of capabilities: capabilities(7).
_SYS_RESOURCE = 24


def can_raise_limits(status):
    """Tell from /proc/1/status whether anything on this machine may have CAP_SYS_RESOURCE."""
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)$", status, re.M)
    return found is not None and bool(int(found.group(1), 16) >> _SYS_RESOURCE & 1)


def containers(root, names, patience=1, run=None, hosts=None):
    """Return what the engine says of each container that it has; None: it did not answer in time.

    ``problem`` is why it says nothing of any: it is not installed, or refuses. ``raised`` tells whether the machine
    allows limits above its own, ``nvidia_driver`` which release of NVIDIA's driver runs, empty for none. ``names`` of
    the containers that ``hosts`` names (``containers``) tells whether their hosts file holds its ``entries``.
    """
    if not names:
        return {}
    code, said = (run or command_run)(["docker", "container", "inspect", *names], 10 * patience)
    if code is None and said:
        return None
    # What it has found is one list of JSON; what it has not found, or why it refuses, stands around it.
    begin = re.search(r"^\[", said, re.M)
    try:
        entries, end = json.JSONDecoder().raw_decode(said, begin.start()) if begin else ([], 0)
        around = said[: begin.start()] + said[end:] if begin else said
    except ValueError:
        entries, around = [], "the engine answered something else than containers"
    if code is None:
        around = "docker: no such program"
    found = {}
    for entry in entries:
        told = {key: entry.get(key) for key in _TOLD}
        told["Config"] = {key: (entry.get("Config") or {}).get(key) for key in _CONFIG}
        name = str(entry.get("Name", "")).lstrip("/")
        if name in (hosts or {}).get("containers", ()):
            told["names"] = hosts_text.copied(root, entry.get("HostsPath"), hosts["entries"])
        found[name] = told
    lines = [line for line in around.splitlines() if line.strip() and not re.search("No such (container|object)", line)]
    return {
        "found": found,
        "problem": lines[-1][:300] if lines else "",
        "raised": can_raise_limits(read(root, "proc/1/status")),
        "nvidia_driver": read(root, "sys/module/nvidia/version"),
    }


def users(names):
    """Return uid, gid, home and shell of each user that the machine has."""
    found = {}
    for name in names:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        found[name] = {"uid": entry.pw_uid, "gid": entry.pw_gid, "home": entry.pw_dir, "shell": entry.pw_shell}
    return found


def stored_images(root, store):
    """Return the names of the images in a store that podman keeps; a list that cannot be read names none."""
    try:
        images = json.loads(read(root, store.lstrip("/") + "/overlay-images/images.json") or "[]")
        return sorted({str(name) for image in images for name in image.get("names") or []})
    except (ValueError, AttributeError, TypeError):
        return []


def collect(root="/", ask=None, patience=1):
    """Return all of the above for what is asked: lists of names under ``paths``, ``texts``, ``packages``, ..."""
    ask, now = ask or {}, moment()
    # Without systemd there is no service, which is an answer: preflight says what is to be done about it.
    units = (ask.get("services") or ()) if Path(root, "run/systemd/system").is_dir() else ()
    return {
        "paths": paths(root, ask.get("paths") or (), ask.get("texts") or (), ask.get("contents") or (), now),
        "packages": packages(ask.get("packages") or (), patience),
        "services": services(units, patience, now=now),
        "manager": manager(ask.get("manager") or (), patience),
        "containers": containers(root, ask.get("containers") or (), patience, hosts=ask.get("hosts")),
        "users": users(ask.get("users") or ()),
        "mounts": machine_mounts.collect(root, ask.get("mounts") or (), patience),
        "own_mounts": machine_mounts.own(root, ask["own_mounts"]["gone"]) if ask.get("own_mounts") else [],
        "hidden": machine_mounts.hidden(root, ask.get("hidden") or ()),
        "stores": {store: stored_images(root, store) for store in ask.get("stores") or ()},
    }
