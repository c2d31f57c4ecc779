#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a program that tells how far it is, and hand that on while it runs.

Why not C(ansible.builtin.command): it keeps what a program writes on its standard error until the program has ended,
which is minutes for a training job. Asking meanwhile (C(async) and C(poll)) would cost a connection for each
question. No figure: capability, as no module of Ansible's tells anything before it ends.
"""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.telling import listen

DOCUMENTATION = """
module: command_followed
short_description: Run a program that tells how far it is
description:
  - Lines C(going TEXT) and C(ended TEXT) after a mark (see module_utils/telling.py) on the program's standard error
    are shown while it runs. All else is as with C(command), of which this has the results.
options:
  argv: {type: list, elements: str, required: true, description: The program and its arguments.}
"""

RETURN = """
rc: {type: int, returned: always, description: The program's exit code.}
stdout: {type: str, returned: always, description: What it printed.}
stderr: {type: str, returned: always, description: What it wrote on its standard error, without what it told.}
"""


def main():
    """Run the module."""
    module = AnsibleModule(argument_spec={"argv": {"type": "list", "elements": "str", "required": True}})
    argv = module.params["argv"]
    try:
        code, output, problem = listen(argv)
    except OSError as error:
        module.fail_json(msg=f"{argv[0]}: {error.strerror or error}", rc=257, stdout="", stderr="")
    result = {"changed": True, "rc": code, "stdout": output, "stderr": problem}
    if code:
        module.fail_json(msg="non-zero return code", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
