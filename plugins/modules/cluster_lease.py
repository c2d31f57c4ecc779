#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the cluster's lease where it still is what its reader has seen, and tell what it is.

Why not C(ansible.builtin.copy): it looks and writes in two steps, so that two at once would both believe that they
have it. No figure: safety, as of two administrators one has to be told.
"""

from __future__ import annotations

from ansible.module_utils import lease_file
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: cluster_lease
short_description: Write the cluster's lease where it still is what its reader has seen
description:
  - To be told by the action of this name, which decides by what the lease says.
  - Changes nothing that the cluster is made of, and so never reports a change.
options:
  text: {type: str, description: 'The lease to write, empty for none. Without it, nothing is written.'}
  seen: {type: str, default: "", description: The lease that is replaced. Another one stays as it is.}
"""

RETURN = """
written: {type: bool, returned: always, description: Whether the lease was written.}
lease: {type: dict, returned: always, description: "The lease as it is now: C(text), and its C(age) in seconds."}
"""


def main():
    module = AnsibleModule(argument_spec={"text": {"type": "str"}, "seen": {"type": "str", "default": ""}})
    path, text, written = lease_file.PATH, module.params["text"], False
    try:
        if text is None:
            lease = lease_file.look(path)
        else:
            written, lease = lease_file.exchange(path, module.params["seen"], text)
    except OSError as error:
        module.fail_json(msg=f"{path}: {error.strerror}. Fix: see that root can write it on this machine")
    module.exit_json(changed=False, written=written, lease=lease)


if __name__ == "__main__":
    main()
