#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install a CUDA toolkit from NVIDIA's self-extracting installer, and not the driver that is in it.

Why not C(ansible.builtin.get_url) and C(ansible.builtin.command) with C(creates): a toolkit that was interrupted in
the middle would count as installed, and the installer, several GB, would stay. Here the compiler's own word decides.
No figure: safety, as half a toolkit must not count as one.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from ansible.module_utils import site_network
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import run
from ansible.module_utils.urls import fetch_url

DOCUMENTATION = """
module: cuda_installer
short_description: Install a CUDA toolkit from NVIDIA's self-extracting installer
description:
  - Fetches the installer, verifies its checksum, and has it install the toolkit alone. A toolkit whose compiler says
    the right release is left alone, so that a later run needs no installer.
options:
  address: {type: str, required: true, description: 'Where the installer is: a file of the machine, or an address.'}
  sha256: {type: str, required: true, description: Its checksum.}
  version: {type: str, required: true, description: 'The release, for example 12.2.'}
  directory: {type: path, required: true, description: Where the toolkit goes.}
"""


def release(directory):
    """Return the release that a toolkit's compiler says, nothing where there is none."""
    program = Path(directory, "bin", "nvcc")
    if not os.access(str(program), os.X_OK):
        return ""
    found = re.search(r"release (\d+\.\d+)", run([str(program), "--version"], 60)[1])
    return found.group(1) if found else ""


def fetch(module, address, folder):
    """Return the installer as a file of this machine."""
    if not re.match(r"https?://", address):
        path = Path(re.sub(r"^file://", "", address))
        if not path.is_file():
            module.fail_json(msg=f"{path} is not there. Fix: copy the installer to the machine, or give an address")
        return path
    site_network.adopt()
    response, info = fetch_url(module, address, timeout=60)
    if info["status"] != 200:
        module.fail_json(msg=f"{address} could not be fetched: {info['msg']}. Fix: name a mirror that can be reached")
    path = Path(folder, "installer.run")
    with path.open("wb") as stream:
        shutil.copyfileobj(response, stream, 1 << 20)
    return path


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "required": True},
            "sha256": {"type": "str", "required": True},
            "version": {"type": "str", "required": True},
            "directory": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    directory, version = module.params["directory"], module.params["version"]
    if release(directory) == version:
        module.exit_json(changed=False)
    if module.check_mode:
        module.exit_json(changed=True)
    # Several GB: not where small files in memory are.
    folder = tempfile.mkdtemp(dir="/var/tmp")
    try:
        installer = fetch(module, module.params["address"], folder)
        found = module.sha256(str(installer))
        if found != module.params["sha256"]:
            module.fail_json(
                msg=f"{module.params['address']} has sha256 {found}, expected {module.params['sha256']}. "
                "Nothing was run. Fix: fetch it again; if it stays so, find out who changed it"
            )
        words = ["sh", str(installer), "--silent", "--toolkit", "--override", f"--toolkitpath={directory}"]
        # It unpacks itself into the directory for temporary files.
        code, output, problem = module.run_command([*words, f"--tmpdir={folder}"])
        if code or release(directory) != version:
            told = (problem.strip() or output.strip())[-500:]
            module.fail_json(msg=f"the installer left no CUDA {version}: {told}. See /var/log/cuda-installer.log")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
