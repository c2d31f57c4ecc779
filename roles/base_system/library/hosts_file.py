#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Keep our block in a hosts file, and the machine's own name off the loopback addresses.

Why not C(ansible.builtin.blockinfile): it leaves the line that gives the machine's own name a loopback address, and a
daemon then offers that address to the cluster. The text comes from the function with which the file is judged
(C(hosts_text.planned)), so that both say the same. No figure: safety, as a daemon at a loopback address is reached by
nobody.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hosts_text import planned

DOCUMENTATION = r"""
module: hosts_file
short_description: Keep the cluster's names in a hosts file
description:
  - Writes one block between two marker lines, where it is or at the end. Other lines stay as they are.
  - Of lines with a loopback address, the machine's own names are removed, if the block gives them another address.
    Debian's installer writes such a line (127.0.1.1); a daemon that asks for its own address then offers that.
  - Where the file cannot be replaced at once, as in a container that has it mounted, it is rewritten in place.
options:
  path:
    description: The file.
    type: path
    default: /etc/hosts
  entries:
    description: Address and names of each host.
    type: list
    elements: dict
    required: true
  own_names:
    description: Names of the machine itself.
    type: list
    elements: str
    default: []
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/etc/hosts"},
            "entries": {"type": "list", "elements": "dict", "required": True},
            "own_names": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    path = Path(module.params["path"])
    try:
        before = path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""
        after = planned(before, module.params["entries"], module.params["own_names"])
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{path}: {error}. Fix: correct the file by hand, then run again")
    if after != before and path.exists() and not os.access(path, os.W_OK):
        # Of root, only an attribute or the file system keeps anything from being written.
        module.fail_json(
            msg=f"{path}: not even root may change it: it has been made immutable, or its file system is read-only. "
            f"Fix: lsattr {path}; chattr -i {path}; then clusterctl provision base"
        )
    diff = {"before": before, "after": after, "before_header": str(path), "after_header": str(path)}
    if after != before and not module.check_mode:
        # Not beside the file: a run that is killed here would leave it there for ever.
        handle, name = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(after)
        Path(name).chmod(0o644)
        module.atomic_move(name, str(path), unsafe_writes=True)
    module.exit_json(changed=after != before, diff=diff)


if __name__ == "__main__":
    main()
