# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have packages installed, and ask cheaply whether they are.

``packages_present: {name: [...]}``. The package manager's own module reads its whole index to say "nothing to do",
seconds of a processor on each machine. The package database answers the same in milliseconds; the module runs only
where something is missing, waits for whoever holds the lock, and reads the index anew if it is old.
"""

from __future__ import annotations

import shlex

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

#: By family: how to ask (each prints the names that are installed), and what installs.
_FAMILIES = {
    "Debian": (
        r"dpkg-query --show --showformat='${db:Status-Status} ${binary:Package}\n' %s 2>/dev/null",
        "ansible.builtin.apt",
        {"lock_timeout": 600, "update_cache": True, "cache_valid_time": 3600, "install_recommends": False},
    ),
    "RedHat": (
        r"rpm --query --queryformat 'installed %%{NAME}\n' %s 2>/dev/null",
        "ansible.builtin.dnf",
        {"lock_timeout": 600},
    ),
}


class ActionModule(ActionBase):
    """``packages_present``: see the module's docstring."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        names = self._task.args.get("name")
        if (
            set(self._task.args) != {"name"}
            or not isinstance(names, list)
            or not all(isinstance(n, str) for n in names)
        ):
            raise AnsibleActionFail("packages_present takes exactly one thing: name, a list of packages")
        family = (task_vars.get("ansible_facts") or {}).get("os_family", "unknown")
        if family not in _FAMILIES:
            raise AnsibleActionFail(f"no package manager is known for {family}; known are {', '.join(_FAMILIES)}")
        question, module, options = _FAMILIES[family]
        answer = self._low_level_execute_command(question % " ".join(shlex.quote(name) for name in names))
        lines = (line.split() for line in (answer.get("stdout") or "").splitlines())
        installed = {words[1].partition(":")[0] for words in lines if len(words) == 2 and words[0] == "installed"}
        missing = [name for name in names if name not in installed]
        if missing:
            arguments = {"name": missing, "state": "present", **options}
            result.update(self._execute_module(module_name=module, module_args=arguments, task_vars=task_vars))
        result.setdefault("changed", False)
        return result
