# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clusterctl does around a run, where ansible-playbook runs these playbooks without it.

The inventory passes the same allow-lists before the first play, what a machine answers over ssh is bounded in the same
way, and the run of a judging playbook ends with the same verdict on the same owed checks: one that says no is the
command's exit code. Ansible's own hides what never ran: a play for no machine is a success to it. In check mode the
others end with what would be done, as ``clusterctl plan`` tells it: Ansible shows no difference of what did not change.

It stands beside the playbooks, because Ansible finds it there whatever its settings say. What it hands on are
ansible-runner's events in the shape that clusterctl folds; nothing is judged here.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from ansible import constants as C  # noqa: N812 - Ansible's own name for it
from ansible import context
from ansible.executor.process import worker
from ansible.plugins.callback import CallbackBase
from ansible.plugins.connection import ssh
from ansible.utils.display import Display

from provision.errors import ClusterctlError, ExitCode
from provision.ssh import bounded, told

DOCUMENTATION = """
    callback: cluster_door
    short_description: Checks the inventory and judges a verification, as clusterctl does
    version_added: "0.1.0"
    description:
      - Refuses what clusterctl refuses, bounds what machines answer, and ends a verification with its verdict.
    type: aggregate
"""

#: The playbooks that this file stands beside; those of somebody else are none of its business.
HERE = Path(__file__).parents[1]

#: The environment variable that tells ``cluster_check`` that somebody judges the whole run.
JUDGE = "CLUSTERCTL_JUDGE"


class CallbackModule(CallbackBase):
    """Ends ansible-playbook itself where clusterctl would not have begun, or would not have been satisfied."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "cluster_door"

    def __init__(self):
        super().__init__()
        self._run = None
        # There clusterctl is told all that happens, and judges.
        self.disabled = C.DEFAULT_STDOUT_CALLBACK == "clusterctl_events"
        if not self.disabled:
            ssh.subprocess = bounded.module(told.ears(lambda: worker.current_worker, Display().display))
            os.environ[JUDGE] = self.CALLBACK_NAME

    def v2_playbook_on_start(self, playbook):
        self._run = None

    def v2_playbook_on_play_start(self, play):
        with _ending():
            path = Path(play.get_path().rpartition(":")[0])
            ours = path.parent == HERE and not path.stem.startswith("lab_")
            if ours and self._run is None:
                self._run = _door().begin(*_given(play.get_variable_manager()))
            if self._run is not None:
                hosts = play.hosts
                pattern = hosts if isinstance(hosts, str) else ",".join(hosts)
                self._run.play(path.stem if ours else "", play.get_name(), pattern)

    def v2_playbook_on_no_hosts_matched(self):
        self._add("playbook_on_no_hosts_matched", {})

    def v2_runner_on_ok(self, result):
        self._result("runner_on_ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._result("runner_on_failed", result, ignore_errors=ignore_errors)

    def v2_runner_on_skipped(self, result):
        self._result("runner_on_skipped", result)

    def v2_runner_on_unreachable(self, result):
        self._result("runner_on_unreachable", result)

    def v2_playbook_on_stats(self, stats):
        if self._run is None:
            return
        with _ending():
            self._add("playbook_on_stats", {"failures": dict(stats.failures)})
            run, self._run = self._run, None
            code = run.end(
                failed=any(stats.failures.values()),
                unreachable=any(stats.dark.values()),
                check_mode=bool(context.CLIARGS.get("check")),
            )
        if code is not None and code is not ExitCode.DONE:
            sys.exit(int(code))

    def _result(self, event, result, **more):
        task = result.task
        self._add(
            event,
            {
                "host": result.host.get_name(),
                "task": task.name or task.action,
                "role": task._role.get_name() if task._role else "",
                "task_action": task.action,
                "resolved_action": task.resolved_action or task.action,
                "res": _data(result.result),
                **more,
            },
        )

    def _add(self, event, data):
        if self._run is not None:
            self._run.add({"event": event, "created": datetime.now(UTC).isoformat(), "event_data": data})


def _door():
    """Return what this hands on to: not loaded, for a tenth of a second, where clusterctl itself is told all."""
    from provision.cli import plain

    return plain


class _ending:  # noqa: N801 - used as a statement
    """Ends the run where Ansible would only warn that a callback has failed, and then call it a success."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, ClusterctlError):
            _door().refuse(error)
            sys.exit(int(error.exit_code))
        if isinstance(error, Exception):
            _door().crashed(error)
            sys.exit(int(ExitCode.BUG))


def _data(result):
    """Return a result as plain data: what is none (a value still encrypted) is nobody's to read."""
    return json.loads(json.dumps(result, default=lambda value: None))


def _given(manager):
    """Return what the operator gave: sources, groups, variables, the machines in scope, what ``-e`` sets."""
    inventory = manager._inventory
    hostvars = {}
    for host in inventory.get_hosts("all", ignore_limits=True, ignore_restrictions=True):
        found = manager.get_vars(host=host, include_hostvars=False, stage="all")
        hostvars[host.name] = _data({name: found[name] for name in found if name not in C.INTERNAL_STATIC_VARS})
    groups = {name: tuple(hosts) for name, hosts in inventory.get_groups_dict().items()}
    groups["all"] = tuple(hostvars)
    scope = [host.name for host in inventory.get_hosts("all", ignore_restrictions=True)]
    sources = [Path(source) for source in context.CLIARGS["inventory"] or ()]
    return sources, groups, hostvars, scope, manager.extra_vars
