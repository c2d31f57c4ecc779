# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-runner's events without those that nobody reads, and an Ansible whose workers start faster.

A worker is a fork. Python's garbage collector writes into every object that it looks at, so each worker copies most of
its parent's memory to learn that there is nothing to collect. Objects that are frozen are not looked at.
"""

from __future__ import annotations

import gc
from datetime import UTC, datetime

from ansible.plugins.loader import callback_loader

DOCUMENTATION = """
    callback: clusterctl_events
    short_description: Events for clusterctl, through ansible-runner
    version_added: "0.1.0"
    description:
      - What ansible-runner's awx_display does, less its event for the start of each task on each machine.
    type: stdout
    extends_documentation_fragment:
      - default_callback
    requirements:
      - awx_display, in a directory of callback_plugins
"""


class CallbackModule(callback_loader.get("awx_display", class_only=True)):
    """Hands events over to the clusterctl process that started this one."""

    CALLBACK_NAME = "clusterctl_events"

    def v2_playbook_on_play_start(self, play):
        """Collect what the last play has left, and freeze the rest, which lives at least as long as this play."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        super().v2_playbook_on_play_start(play)

    def v2_runner_on_start(self, host, task):
        """Note the time, from which awx_display tells a result's duration; tell nobody."""
        self._host_start[host.get_name()] = datetime.now(UTC)
