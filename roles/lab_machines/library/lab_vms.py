#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Keep the virtual machines of a lab running that it shall have, and remove all others.

Why not C(community.libvirt.virt): it wants libvirt's daemon, which a computer that is a container itself often cannot
run. These machines are processes of QEMU and need nothing else. No figure: capability, as a lab in a container has no
other virtual machines.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from provision.lab import computer

DOCUMENTATION = """
module: lab_vms
short_description: Keep the virtual machines of a lab running that it shall have, and remove all others
description:
  - A machine is a process of QEMU and a directory with its disk, its console's log and its description.
  - One that is there in another shape is removed with its disk and made anew as a whole, never half.
  - Runs on the computer of the lab, with the Python of clusterctl.
options:
  lab:
    description: The lab's name.
    type: str
    required: true
  directory:
    description: Directory of the machines' directories and of links to the files that they start from.
    type: path
    required: true
  machines:
    description: What provision.lab.vm.machines returns. Empty removes all.
    type: dict
    default: {}
"""

EXAMPLES = """
- name: Remove the virtual machines of a lab
  lab_vms:
    lab: lab
    directory: /root/.local/state/clusterctl/labs/lab/vm
"""

RETURN = """
removed:
  description: Machines that were removed.
  returned: always
  type: list
  elements: str
started:
  description: Machines that were made or switched on.
  returned: always
  type: list
  elements: str
"""

#: Seconds that QEMU may take to end; it has nothing to finish.
_PATIENCE = 10


def recorded(place):
    """Return how a machine was made; empty for one that was only half made."""
    try:
        return json.loads((place / "machine.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def stop(lab, name):
    """End the machine's process, the hard way if need be, and wait until it is gone."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + _PATIENCE
        pid = computer.running(lab).get(name)
        while pid and time.monotonic() < until:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return
            time.sleep(0.1)
            pid = computer.running(lab).get(name)
        if not pid:
            return


def link(module, base, directory):
    """Have the files of a disk to start from here too, so that the cache may forget them."""
    for kind in ("vmlinuz", "initrd", "disk"):
        own = directory / f"{Path(base).name}.{kind}"
        if own.exists():
            continue
        try:
            os.link(f"{base}.{kind}", own)
        except OSError:
            # The cache is on another file system. It is mostly holes, which a plain copy would fill.
            module.run_command(["cp", "--sparse=always", f"{base}.{kind}", f"{own}.part"], check_rc=True)
            Path(f"{own}.part").rename(own)


def make(module, place, machine):
    """Give the machine a disk of its own, which keeps only what differs from the one that it starts from."""
    link(module, machine["base"], place.parent)
    half = place.with_name(f".{place.name}")
    half.mkdir(mode=0o700)
    origin = place.parent / f"{Path(machine['base']).name}.disk"
    # By full path: the directory gets its name last.
    module.run_command(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(origin), str(half / "disk")], check_rc=True
    )
    (half / "machine.json").write_text(json.dumps(machine, indent=1), encoding="utf-8")
    half.rename(place)


def settle(module, lab, directory, wanted):
    """Remove and start machines until those that are wanted run, and no others; return the names of both."""
    places = [place for place in directory.iterdir() if place.is_dir()] if directory.is_dir() else []
    running = computer.running(lab)
    shapes = {**dict.fromkeys(running), **{place.name: recorded(place).get("shape") for place in places}}
    surplus = sorted(name for name, shape in shapes.items() if name not in wanted or shape != wanted[name]["shape"])
    missing = [name for name in wanted if name in surplus or name not in running]
    if module.check_mode:
        return surplus, missing
    for name in surplus:
        stop(lab, name)
        shutil.rmtree(directory / name, ignore_errors=True)
    for name in missing:
        place = directory / name
        if not place.exists():
            make(module, place, wanted[name])
        # Without the mark of this run: whatever carries it is ended with the run, should that be stopped.
        status, _, told = module.run_command(["env", "-u", "CLUSTERCTL_RUN", *recorded(place)["command"]])
        if status:
            module.fail_json(msg=f"QEMU does not start {name}: {told.strip() or f'it ended with {status}'}")
    return surplus, missing


def main():
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "lab": {"type": "str", "required": True},
            "directory": {"type": "path", "required": True},
            "machines": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    lab, directory = module.params["lab"], Path(module.params["directory"])
    removed, started = settle(module, lab, directory, module.params["machines"])
    module.exit_json(changed=bool(removed or started), removed=removed, started=started)


if __name__ == "__main__":
    main()
