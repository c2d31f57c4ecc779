# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's hardware and driver as a machine's files and package database show them. Reads only. Python 3.8.

Nothing here judges. What cannot be told is None or an empty text, never a guess: ``product`` of an id that the table
does not know, ``secure_boot`` where the firmware's variables are not mounted, a module that modinfo does not describe.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from ansible.module_utils import machine_commands, machine_state
from ansible.module_utils import machine_gpu_bus as on_the_bus
from ansible.module_utils import machine_gpu_kernel as kernel_side
from ansible.module_utils import machine_gpu_packages as package_side
from ansible.module_utils.machine_gpu_users import holders
from ansible.module_utils.machine_hardware import listed

#: Seconds that a program may take. nvidia-smi hangs where a GPU has fallen off the bus.
SECONDS, SMI_SECONDS = 60, 30

#: They hold the GPU open, and whoever changes the driver stops and starts them.
SERVICES = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "dcgm-exporter")

#: What hardware records of GPUs need.
bus = on_the_bus.bus


def _run(command):
    """Return what ``machine_commands.run`` does, within the time that a question about GPUs may take."""
    return machine_commands.run(command, SMI_SECONDS if command[0] == "nvidia-smi" else SECONDS)


def services(root, run, boot=None):
    """Return the state of the services that a driver brings, those that systemd knows.

    ``outdated`` is one that was started before a file was written that changes its unit. ``boot`` is when the kernel's
    monotonic clock was 0, in seconds since 1970.
    """
    boot = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) if boot is None else boot
    asked = [name + ".service" for name in SERVICES[:2]]
    properties = "Id,LoadState,ActiveState,UnitFileState,ActiveEnterTimestampMonotonic"
    _, text = run(["systemctl", "show", "--property=" + properties, *asked])
    found = {}
    for block in text.split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if fields.get("LoadState") == "loaded":
            active = fields.get("ActiveState") == "active"
            since = int(fields.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
            directory = "etc/systemd/system/" + fields["Id"] + ".d"
            written = [kernel_side.modified(Path(root, directory, name)) for name in listed(root, directory)]
            found[fields["Id"].rsplit(".", 1)[0]] = {
                "active": active,
                "enabled": fields.get("UnitFileState") == "enabled",
                "outdated": active and since > 0 and max(written, default=0) > boot + since,
            }
    return found


def smi(run):
    """Return the GPUs that nvidia-smi lists, its complaint where it does not, and whether it gave no answer."""
    code, text = run(["nvidia-smi", "--query-gpu=pci.bus_id,name,driver_version", "--format=csv,noheader"])
    if code is None:
        error = "nvidia-smi " + text if text else "there is no nvidia-smi"
        return {"gpus": [], "driver": "", "error": error, "silent": bool(text)}
    found, driver = [], ""
    for line in text.splitlines()[:256]:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and re.match(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]$", fields[0]):
            found.append({"address": fields[0][4:].lower(), "product": fields[1][:100]})
            driver = fields[2][:40]
    error = "" if code == 0 else " ".join(text.split())[:300] or f"ended with {code}"
    return {"gpus": found, "driver": driver, "error": error, "silent": False}


def collect(root="/", run=None, files=(), apt=False, contained=False):
    """Return everything above as one mapping of plain values."""
    run = run or _run
    on_bus = [] if contained else on_the_bus.devices(root)
    seen = on_the_bus.gpus(on_bus)
    kernel = kernel_side.kernels(root)
    installed = package_side.packages(run)
    module = kernel_side.loaded_module(root)
    concerned = bool(seen or installed or module["loaded"])
    releases = sorted(kernel["headers"], key=kernel_side.release_order) if concerned else []
    module["on_disk"] = kernel_side.modules(root, releases, run)
    there = package_side.libraries(root) if concerned else []
    known = services(root, run) if concerned else {}
    held = holders(root) if module["loaded"] else []
    _, dkms = run(["dkms", "status"]) if installed else (None, "")
    manager = next((info for name, info in installed.items() if name.startswith("nvidia-fabricmanager")), None)
    return {
        "gpus": seen,
        "passed_through": on_the_bus.passed_through(on_bus),
        "virtual": on_the_bus.virtual(root, on_bus),
        "vgpu_manager": not contained and on_the_bus.vgpu_manager(root),
        "nvswitches": on_the_bus.nvswitches(root, on_bus),
        "unread_bridges": on_the_bus.unread_bridges(root, on_bus),
        "rdma_adapters": on_the_bus.adapters(on_bus),
        "kernel": kernel,
        "secure_boot": kernel_side.secure_boot(root),
        "nouveau": kernel_side.nouveau(root, seen, releases),
        "module": module,
        "library": there[-1] if there else "",
        "libraries": there,
        "packages": installed,
        "dkms": [line.strip() for line in dkms.splitlines() if line.startswith("nvidia")],
        "runfile": Path(root, "usr/bin/nvidia-uninstall").exists(),
        "fabric_manager": {
            "version": manager["version"].rsplit("-", 1)[0] if manager else "",
            "active": known.get("nvidia-fabricmanager", {}).get("active", False),
            "enabled": known.get("nvidia-fabricmanager", {}).get("enabled", False),
        },
        "services": known,
        "smi": smi(run) if seen else {"gpus": [], "driver": "", "error": "", "silent": False},
        "users": [f"{one['name']} (pid {one['pid']})" for one in held],
        "holders": held,
        "reboot_required": Path(root, "run/reboot-required").exists(),
        "kernel_packages": package_side.kernel_packages(run) if concerned else {},
        "apt": package_side.apt_sources(run) if apt else [],
        "files": machine_state.paths(root, files, contents=files),
    }
