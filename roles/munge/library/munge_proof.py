#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a credential on this machine, or decode those that others made. Changes nothing.

Why not C(ansible.builtin.command) of munge and unmunge: each credential would be an item of a loop, on each machine.
And the key is to be compared without leaving the machine. Measured (November 2026, over ssh, the least of three): an
item is 0.013 s of the control node's processor and 0.3 s of time, so that among 16 machines each would take 5 s.
"""

from __future__ import annotations

import pwd
import re
import time

from ansible.module_utils import machine_commands, machine_key
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: munge_proof
short_description: Make a credential on this machine, or decode those that others made
description:
  - Without C(credentials), answers with the key's mode, owner and salted hash, and with a credential made as the user
    nobody, whose credentials open nothing.
  - With C(credentials), answers with what munge says to each, and with what its clock showed before and after.
options:
  path: {type: path, default: /etc/munge/munge.key, description: The key's file.}
  salt: {type: str, default: "", description: Salt of the key's hash, in hexadecimal.}
  credentials: {type: dict, description: Credentials by the machine that made them.}
"""


SECONDS = 10  # munged answers in milliseconds, or it hangs
HUNG = f"munged did not answer in {SECONDS} s"


def run(argv, stdin="", user=None):
    """Return what a command prints and whether it succeeded."""
    identity = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    code, text = machine_commands.run(argv, SECONDS, stdin=stdin, **identity)
    if code is None:
        return (f"munged {text}" if text else f"{argv[0]} cannot be run"), False
    return text.strip(), code == 0


def of_this_machine(path, salt):
    """Return what there is to know about this machine's key, and a credential."""
    text, made = run(["munge", "--no-input"], user=pwd.getpwnam("nobody"))
    key = machine_key.collect("/", {"path": path, "salt": salt})
    return {"key": key, "credential": text if made else "", "error": "" if made else text, "hung": text == HUNG}


def decode(credential):
    """Return what munge says to a credential: its status, and when it was made and decoded in seconds since 1970."""
    text, _ = run(["unmunge"], stdin=credential)
    times = {
        side: int(found[1]) if (found := re.search(rf"^{side.upper()}_TIME:.*\((\d+)\)", text, re.M)) else None
        for side in ("encode", "decode")
    }
    status = re.search(r"^STATUS:\s*(.*)$", text, re.M)
    return {"status": status[1] if status else text[:200], **times}


def main():
    """Run the module."""
    begun = time.time()
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/etc/munge/munge.key"},
            "salt": {"type": "str", "default": ""},
            "credentials": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    if module.params["credentials"] is None:
        module.exit_json(changed=False, **of_this_machine(module.params["path"], module.params["salt"]))
    decoded = {}
    silent = None  # one that hangs is waited for once, not once for each machine
    for host, text in module.params["credentials"].items():
        if text:
            decoded[host] = silent or decode(text)
            if decoded[host]["status"] == HUNG:
                silent = decoded[host]
    module.exit_json(changed=False, decoded=decoded, clock={"begun": begun, "ended": time.time()})


if __name__ == "__main__":
    main()
