# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-runner's events without those that nobody reads, and an Ansible whose workers start faster and read less.

A worker is a fork. Python's garbage collector writes into every object that it looks at, so each worker copies most of
its parent's memory to learn that there is nothing to collect. Objects that are frozen are not looked at.

What a machine answers over ssh is bounded (provision.ssh.bounded). It is done here, because this is loaded before the
first worker is made, and a connection plugin of our own would have to repeat the documentation of Ansible's.
"""

from __future__ import annotations

import gc
from datetime import UTC, datetime

from ansible.plugins.connection import ssh
from ansible.plugins.loader import callback_loader

from provision.ssh import bounded

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

ssh.subprocess = bounded.module()


class CallbackModule(callback_loader.get("awx_display", class_only=True)):  # type: ignore[misc] # found while running
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
