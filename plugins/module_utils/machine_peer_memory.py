# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine has that registers GPUs' memory with RDMA: modules, OFED, packages. Reads only.

Standard library, Python 3.8. Commands go through ``run``, which takes a list and returns what was printed, or None.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path

from ansible.module_utils.machine_hardware import listed, read

_PEER_SYMBOL = "ib_register_peer_memory_client"
#: Packages and the service of the forerunner of nvidia-peermem.
_OLD_PACKAGES = ("nvidia-peer-memory", "nvidia-peer-memory-dkms")
_OFED_PACKAGES = ("mlnx-ofed-kernel-dkms", "mlnx-ofed-kernel", "doca-ofed")


def has_symbol(path):
    """Tell whether a kernel's list of symbols names the peer memory interface; None where there is no list."""
    try:
        with Path(path).open(encoding="ascii", errors="replace") as lines:
            wanted = re.compile(rf"(^|\s){_PEER_SYMBOL}(\s|$)")
            empty = True
            for line in lines:
                empty = False
                if _PEER_SYMBOL in line and wanted.search(line):
                    return True
    except OSError:
        return None
    return None if empty else False


def peer_memory(root, kernel):
    """Return whether the running kernel offers peer memory (None: not known), and the OFED trees that say so.

    The kernel's own list tells only while ib_core is loaded. What the driver's modules are built against is OFED's list
    of symbols, where there is one, whatever runs.
    """
    trees = [
        f"usr/src/ofa_kernel/{platform.machine()}/{kernel}",
        f"usr/src/ofa_kernel/{kernel}",
        "usr/src/ofa_kernel/default",
        *sorted(f"var/lib/dkms/mlnx-ofed-kernel/{one}/build" for one in listed(root, "var/lib/dkms/mlnx-ofed-kernel")),
    ]
    built = [tree for tree in trees if has_symbol(Path(root, tree, "Module.symvers"))]
    running = None
    if Path(root, "sys/module/ib_core").is_dir() or listed(root, "sys/class/infiniband"):
        running = has_symbol(Path(root, "proc/kallsyms"))
    if running is None and has_symbol(Path(root, f"lib/modules/{kernel}/build/Module.symvers")):
        running = True
    return running, [f"/{tree}" for tree in built]


def ofed(run):
    """Return kind and version of an OFED; both empty for the distribution's own drivers."""
    told = (run(["ofed_info", "-s"]) or "").strip().rstrip(":")
    found = re.match(r"(MLNX_OFED_LINUX|OFED-internal|MLNX_EN)-?(\S*)$", told)
    if not found:
        return {"kind": "", "version": ""}
    # DOCA-OFED calls itself so since it replaced MLNX_OFED.
    return {"kind": "DOCA-OFED" if found.group(1) == "OFED-internal" else "MLNX_OFED", "version": found.group(2)}


def installed(run):
    """Return the versions of those packages of both forerunner and OFED that are installed."""
    names = [*_OLD_PACKAGES, *_OFED_PACKAGES]
    answer = run(["dpkg-query", "-W", "-f=${Package} ${Version} ${db:Status-Status}\n", *names]) or ""
    lines = (line.split() for line in answer.splitlines())
    return {words[0]: words[1] for words in lines if words[2:] == ["installed"]}


def modules(root, run, kernel):
    """Return both modules that register GPUs as peer memory: loaded version, and what lies on disk for this kernel."""
    found = {}
    for name in ("nvidia_peermem", "nv_peer_mem"):
        loaded = Path(root, "sys/module", name).is_dir()
        file = (run(["modinfo", "-k", kernel, "-n", name]) or "").strip()
        found[name] = {
            "loaded": loaded,
            "version": read(root, f"sys/module/{name}/version") if loaded else "",
            "file": file if file.startswith("/") else "",
            "built": changed(root, file) if file.startswith("/") else 0,
        }
    return found


def changed(root, path):
    """Return when a file was last changed, in whole seconds; 0 where there is none."""
    try:
        return int(Path(root, path.lstrip("/")).stat().st_mtime)
    except OSError:
        return 0


def mentions(root):
    """Return the files that load a module at boot or give it options, by module."""
    found: dict = {}
    for directory in ("etc/modules-load.d", "etc/modprobe.d", "usr/lib/modules-load.d", "lib/modules-load.d"):
        for name in listed(root, directory):
            for line in read(root, f"{directory}/{name}").splitlines():
                words = line.split("#")[0].split()
                for module in ("nvidia_peermem", "nv_peer_mem", "ib_umad"):
                    if module in (one.replace("-", "_") for one in words) and name.endswith(".conf"):
                        found.setdefault(module, {})[f"/{directory}/{name}"] = " ".join(words)
    return found


def old_service(root):
    """Return the links that start the forerunner's service at boot: systemd's, and those of its old script.

    Names are compared, because the links of a package that was removed lead nowhere.
    """
    units = "etc/systemd/system"
    places = [f"{units}/{name}" for name in listed(root, units) if name.endswith(".wants")]
    places += [f"etc/rc{level}.d" for level in "2345"]
    wanted = re.compile(r"nv_peer_mem\.service|S\d+nv_peer_mem")
    return [f"/{place}/{name}" for place in places for name in listed(root, place) if wanted.fullmatch(name)]
