# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-runner's events without those that nobody reads, and an Ansible whose workers start faster and read less.

What is still waited for is told only where it is waited for: an event for each start would cost as much as one for each
result, and in a run that has nothing to do nobody would see it.

A worker is a fork. Python's garbage collector writes into every object that it looks at, so each worker copies most of
its parent's memory to learn that there is nothing to collect. Objects that are frozen are not looked at.

What a machine answers over ssh is bounded (provision.ssh.bounded). It is done here, because this is loaded before the
first worker is made, and a connection plugin of our own would have to repeat the documentation of Ansible's.
"""

from __future__ import annotations

import gc
import threading
import time
from datetime import UTC, datetime

from ansible.executor.process import worker
from ansible.plugins.connection import ssh
from ansible.plugins.loader import callback_loader
from ansible.utils.display import Display

from provision.ssh import bounded, told

DOCUMENTATION = """
    callback: clusterctl_events
    short_description: Events for clusterctl, through ansible-runner
    version_added: "0.1.0"
    description:
      - What ansible-runner's awx_display does, less its event for the start of each task on each machine.
      - An event C(waiting) names the machines on which a task has been going on for some seconds.
    type: stdout
    extends_documentation_fragment:
      - default_callback
    requirements:
      - awx_display, in a directory of callback_plugins
"""

#: Seconds after which a task is waited for, and between two looks at what is.
PATIENCE = 5

ssh.subprocess = bounded.module(told.ears(lambda: worker.current_worker, Display().display))


class CallbackModule(callback_loader.get("awx_display", class_only=True)):  # type: ignore[misc] # found while running
    """Hands events over to the clusterctl process that started this one."""

    CALLBACK_NAME = "clusterctl_events"

    def __init__(self):
        super().__init__()
        # Machine: since when, and whether the task is done elsewhere. Changed by Ansible's two threads, read by ours.
        self._going = {}
        self._told = []
        self._collected = False
        threading.Thread(target=self._watch, daemon=True).start()

    def v2_playbook_on_play_start(self, play):
        """Freeze what there is, nearly all of which lives as long as the run; garbage is looked for once.

        That takes a tenth of a second, and of the ninety plays of a run that has nothing to do most are for nobody.
        (To ask gc.get_freeze_count() whether it is done would go through all that is frozen, for each play.)
        """
        if not self._collected:
            gc.collect()
            self._collected = True
        gc.freeze()
        super().v2_playbook_on_play_start(play)

    def v2_runner_on_start(self, host, task):
        """Note the time, from which awx_display tells a result's duration; tell nobody."""
        self._host_start[host.get_name()] = datetime.now(UTC)
        self._going[host.get_name()] = (time.monotonic(), bool(task.delegate_to))

    def v2_runner_on_ok(self, result):
        self._ended(result)
        super().v2_runner_on_ok(result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._ended(result)
        super().v2_runner_on_failed(result, ignore_errors)

    def v2_runner_on_skipped(self, result):
        self._ended(result)
        super().v2_runner_on_skipped(result)

    def v2_runner_on_unreachable(self, result):
        self._ended(result)
        super().v2_runner_on_unreachable(result)

    def _ended(self, result):
        self._going.pop(result.host.get_name(), None)

    def _watch(self):
        while True:
            time.sleep(PATIENCE)
            late = time.monotonic() - PATIENCE
            # A task that is delegated is waited for on another machine than the one whose task it is.
            hosts = sorted(host for host, (since, away) in self._going.copy().items() if since <= late and not away)
            if hosts != self._told:
                self._told = hosts
                with self.capture_event_data("waiting", hosts=hosts):
                    pass
