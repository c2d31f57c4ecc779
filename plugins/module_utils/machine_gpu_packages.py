# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of NVIDIA's driver on a machine, and what they left on its disk. Reads only. Python 3.8."""

from __future__ import annotations

import re

from ansible.module_utils.machine_gpu_kernel import release_order
from ansible.module_utils.machine_hardware import listed

#: Packages of a driver. GPUs in containers and developers' tools carry NVIDIA's name too and are none.
_DRIVER_PACKAGE = re.compile(
    r"(lib)?nvidia-|libnvidia|cuda-drivers|libcuda1$|libnvcuvid1$|libnvoptix1$|firmware-nvidia"
    r"|linux-(modules|objects|signatures)-nvidia|xserver-xorg-video-nvidia|glx-alternative-nvidia|libnvsdm|libxnvctrl"
)
_OTHER_PACKAGE = re.compile(r"(lib)?nvidia-(container|ctk|docker|cuda-toolkit|nsight|vaapi|texture|profiler|visual)")
_PATTERNS = ("*nvidia*", "cuda-drivers*", "libcuda1", "libnvcuvid1", "libnvsdm*", "libxnvctrl*")

_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib")


def libraries(root):
    """Return the versions of the user-space libraries on disk, oldest first."""
    found = set()
    for place in _LIBRARIES:
        for directory in (place, place + "/nvidia/current", place + "/nvidia"):
            for name in listed(root, directory):
                match = re.match(r"libnvidia-ml\.so\.(\d{3}\.[\d.]+)$", name)
                if match:
                    found.add(match.group(1))
    return sorted(found, key=release_order)


#: "Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>" are not NVIDIA.
_OF_THE_DISTRIBUTION = re.compile(r"debian|ubuntu|canonical", re.IGNORECASE)


def packages(run):
    """Return the driver's packages: version without epoch, whether held, who made them, and whether complete."""
    question = r"${Package}\t${Version}\t${db:Status-Want}\t${db:Status-Status}\t${Maintainer}\n"
    _, text = run(["dpkg-query", "-W", "-f=" + question, *_PATTERNS])
    found = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != 5 or fields[3] in ("not-installed", "config-files"):
            continue
        name, version, want, status, maker = fields
        if _DRIVER_PACKAGE.match(name) and not _OTHER_PACKAGE.match(name):
            found[name] = {
                "version": version.split(":", 1)[-1],
                "held": want == "hold",
                "complete": status == "installed",
                "origin": "nvidia"
                if "nvidia" in maker.lower() and not _OF_THE_DISTRIBUTION.search(maker)
                else "distribution",
            }
    return found


def kernel_packages(run):
    """Return the metapackages that bring new kernels, and whether each is held."""
    question = r"${Package}\t${db:Status-Want}\t${db:Status-Status}\n"
    _, text = run(["dpkg-query", "-W", "-f=" + question, "linux-image-*", "linux-headers-*", "linux-generic*"])
    rows = [line.split("\t") for line in text.splitlines()]
    # A digit right after the name is a release: that package never becomes another kernel.
    return {
        row[0]: row[1] == "hold"
        for row in rows
        if len(row) == 3 and row[2] == "installed" and not re.match(r"linux-(image|headers)-(unsigned-)?\d", row[0])
    }


def apt_sources(run):
    """Return address, suite and component of every package list that apt uses."""
    shown = "$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)"
    code, text = run(["apt-get", "indextargets", "--format", shown, "Created-By: Packages"])
    rows = [line.split("\t") for line in text.splitlines()] if code == 0 else []
    return [{"uri": row[0], "suite": row[1], "component": row[2]} for row in rows if len(row) == 3]
