#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Keep our block in a hosts file, and the machine's own name off the loopback addresses."""

from __future__ import annotations

import ipaddress
import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

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

BEGIN = "# BEGIN hosts of the cluster, written by clusterctl"
END = "# END hosts of the cluster"


def is_loopback(address):
    """Return whether an address leads back to the machine itself."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def without_own_names(line, own):
    """Return a line without the machine's names if its address is a loopback one; None when no name is left.

    ``own`` holds first labels: a name belongs to the machine in whatever domain it is written.
    """
    words = line.split("#", 1)[0].split()
    left = [word for word in words[1:] if word.split(".", 1)[0] not in own]
    if len(words) < 2 or not is_loopback(words[0]) or left == words[1:]:
        return line
    return f"{words[0]}\t{' '.join(left)}" if left else None


def planned(before, entries, own_names):
    """Return the text of the file as it should be.

    Raises:
        ValueError: the block begins and does not end, so that nobody can say which lines are ours.
    """
    lines = before.splitlines()
    at = len(lines)
    if BEGIN in lines:
        at = lines.index(BEGIN)
        if END not in lines[at:]:
            raise ValueError(f"line {at + 1} begins our block, and no line ends it")
        del lines[at : lines.index(END, at) + 1]
    block = [f"{entry['address']}\t{' '.join(entry['names'])}" for entry in entries]
    named = {name.split(".", 1)[0] for entry in entries for name in entry["names"]}
    own = {name.split(".", 1)[0] for name in own_names} - {"localhost"}
    # A machine that the block does not name keeps its line: a loopback address is better than none.
    own &= named
    head = [line for line in (without_own_names(line, own) for line in lines[:at]) if line is not None]
    tail = [line for line in (without_own_names(line, own) for line in lines[at:]) if line is not None]
    return "\n".join([*head, BEGIN, *block, END, *tail]) + "\n"


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
    diff = {"before": before, "after": after, "before_header": str(path), "after_header": str(path)}
    if after != before and not module.check_mode:
        handle, name = tempfile.mkstemp(prefix=".clusterctl-", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(after)
        Path(name).chmod(0o644)
        module.atomic_move(name, str(path), unsafe_writes=True)
    module.exit_json(changed=after != before, diff=diff)


if __name__ == "__main__":
    main()
