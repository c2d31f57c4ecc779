#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move data to other machines over RDMA, both sides at once, and report what the tools and the counters said.

Why not C(ansible.builtin.command) with C(async): both sides of a transfer have to be at the same step at the same
time, and nobody tells one task when another machine's is ready. No figure: capability, as no task of Ansible's speaks
to another machine's.
"""

from __future__ import annotations

import signal

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import run
from ansible.module_utils.rdma_agent import Agent

DOCUMENTATION = """
module: rdma_transfers
short_description: Move data to other machines over RDMA and report what the tools and the counters said
description:
  - Runs on all machines at the same time. Each goes through its own steps in order and meets the machine of each step;
    they agree over a TCP connection of their own, so nobody guesses when the other is ready, and a machine that is
    gone is noticed at once and costs the others one wait.
  - The tools run as an ordinary user after a login's limits, because root may lock any amount of memory. Every one of
    them is bounded by a timeout of its own, also when this module is killed.
options:
  address: {type: str, required: true, description: This machine's address for the agreement.}
  name: {type: str, required: true, description: This machine's name in the others' steps.}
  steps: {type: list, elements: dict, required: true, description: 'As provision.rdma.rounds.schedule returns them.'}
  token: {type: str, required: true, description: 'What all machines of this run know, so that no stranger is served.'}
  port: {type: int, default: 18514, description: TCP port of the agreement; the tools use the next one.}
  user: {type: str, default: nobody, description: The ordinary user as whom the tools run.}
  seconds: {type: int, default: 3, description: How long bandwidth is measured on real adapters.}
  timeout: {type: int, default: 30, description: Seconds that one tool may take.}
  patience: {type: int, default: 120, description: Seconds until all machines have begun.}
"""


def stopped(*_):
    """End in order, so that the tools are ended too."""
    raise SystemExit(143)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "steps": {"type": "list", "elements": "dict", "required": True},
            "token": {"type": "str", "required": True, "no_log": True},
            "port": {"type": "int", "default": 18514},
            "user": {"type": "str", "default": "nobody"},
            "seconds": {"type": "int", "default": 3},
            "timeout": {"type": "int", "default": 30},
            "patience": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    signal.signal(signal.SIGTERM, stopped)
    _, help_text = run(["ib_write_bw", "--help"], 10)
    try:
        results = [] if module.check_mode else Agent(module.params).run()
    except OSError as error:
        module.fail_json(msg=f"{module.params['address']} port {module.params['port']}: {error}")
    module.exit_json(changed=False, results=results, cuda="use_cuda" in help_text)


if __name__ == "__main__":
    main()
