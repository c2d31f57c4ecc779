# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have packages installed at one exact version, and kept there, and ask cheaply whether they are.

``packages_held: {name: [...], version: "1.2.3-1"}``; without a version, any that is installed or the newest. Held, the
packages stay as they are in upgrades of the machine, unattended ones too (apt-mark hold, dnf versionlock). The package
database answers in milliseconds; the package manager runs only where something differs.
"""

from __future__ import annotations

import shlex

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

#: By family: how to ask (a line "hold|- version name" for each package that is installed), what installs with which
#: options, how a version is asked for, and what holds.
_FAMILIES: dict = {
    "Debian": {
        "ask": r"dpkg-query --show "
        r"--showformat='${db:Status-Want} ${db:Status-Status} ${Version} ${binary:Package}\n' %s"
        ' 2>/dev/null | awk \'$2 == "installed" {print ($1 == "hold" ? "hold" : "-"), $3, $4}\'',
        "module": "ansible.builtin.apt",
        "options": {
            "lock_timeout": 600,
            "update_cache": True,
            "install_recommends": False,
            "allow_downgrade": True,
            "allow_change_held_packages": True,
        },
        "exact": "{name}={version}",
        "hold": "apt-mark hold %s",
    },
    "RedHat": {
        "ask": "locks=$(cat /etc/dnf/plugins/versionlock.list 2>/dev/null); for name in %s; do"
        ' version=$(rpm --query --queryformat "%%{VERSION}-%%{RELEASE}" "$name" 2>/dev/null) || continue;'
        ' case "$locks" in *"$name-"*"$version"*) held=hold ;; *) held=- ;; esac; echo "$held $version $name"; done',
        "module": "ansible.builtin.dnf",
        "options": {"lock_timeout": 600, "allow_downgrade": True, "update_cache": True},
        "exact": "{name}-{version}",
        "hold": "dnf --quiet versionlock add %s",
    },
}


def standing(text):
    """Return (version, held) of each package in the answer, by name."""
    rows = (line.split() for line in text.splitlines())
    return {row[2].partition(":")[0]: (row[1], row[0] == "hold") for row in rows if len(row) == 3}


def missing(names, version, there):
    """Return the packages that are not installed as wanted."""
    return [name for name in names if name not in there or (version and there[name][0] != version)]


class ActionModule(ActionBase):
    """``packages_held``: see the module's docstring."""

    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        names, version = self._task.args.get("name"), str(self._task.args.get("version") or "")
        if not isinstance(names, list) or not names or set(self._task.args) - {"name", "version"}:
            raise AnsibleActionFail("packages_held takes name, a list of packages, and version")
        family = (task_vars.get("ansible_facts") or {}).get("os_family", "unknown")
        if family not in _FAMILIES:
            raise AnsibleActionFail(f"no package manager is known for {family}; known are {', '.join(_FAMILIES)}")
        how, quoted = _FAMILIES[family], " ".join(shlex.quote(name) for name in names)
        there = standing(self._low_level_execute_command(how["ask"] % quoted).get("stdout") or "")
        wrong = missing(names, version, there)
        result.update(changed=bool(wrong) or not all(held for _, held in there.values()))
        if self._task.check_mode or not result["changed"]:
            return result
        if wrong:
            # All of the set, so that the package manager sees which versions belong together.
            wanted = [how["exact"].format(name=name, version=version) if version else name for name in names]
            done = self._execute_module(
                module_name=how["module"],
                module_args={"name": wanted, "state": "present", **how["options"]},
                task_vars=task_vars,
            )
            result.update(done)
            if done.get("failed"):
                return result
        held = self._low_level_execute_command(how["hold"] % quoted)
        result["changed"] = True
        if held.get("rc"):
            told = (held.get("stderr") or held.get("stdout") or "").strip()
            result.update(failed=True, msg=f"the packages are installed but could not be held: {told}")
        return result
