#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give containers that run the machine's /etc/hosts as it is now, without a restart.

Why not a restart: the engine copies the file when a container starts, so a new machine of the cluster would cost the
daemons of all others a start. Why not C(copy) and C(template): the container shows the very file that was there when
it started, so it has to be written in its place. No figure: safety, as jobs go on where a daemon is not restarted.
"""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hosts_text import planned
from ansible.module_utils.machine_commands import bounded

DOCUMENTATION = """
module: container_hosts
short_description: Give containers that run the machine's /etc/hosts as it is now
description:
  - Writes what C(/etc/hosts) of the machine holds, with the given lines in it, into the engine's copies
    (C(HostsPath) of C(docker container inspect)). Containers that do not run are left alone: a start copies it anew.
options:
  containers: {type: list, elements: str, required: true, description: Names of the containers.}
  entries: {type: list, elements: dict, required: true, description: Address and names of each host.}
"""

RETURN = """
written: {type: list, elements: str, returned: success, description: Containers whose file was another.}
"""


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "containers": {"type": "list", "elements": "str", "required": True},
            "entries": {"type": "list", "elements": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    shown = "{{if .State.Running}}{{.Name}} {{.HostsPath}}{{end}}"
    command = ["docker", "container", "inspect", "--format", shown, *module.params["containers"]]
    # One that does not exist is an error beside what the others are.
    told = module.run_command(bounded(command, 20))[1]
    written = []
    try:
        text = Path("/etc/hosts").read_text(encoding="utf-8", errors="surrogateescape")
        wanted = planned(text, module.params["entries"], []).encode("utf-8", "surrogateescape")
        for name, path in (line.split(" ", 1) for line in told.splitlines() if " /" in line):
            if Path(path).read_bytes() == wanted:
                continue
            written.append(name.lstrip("/"))
            if not module.check_mode:
                write(path, wanted)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{error}. Fix: correct /etc/hosts by hand, then run again")
    module.exit_json(changed=bool(written), written=written)


def write(path, content):
    """Write a file in its place; who reads it meanwhile sees lines of before or of now."""
    with Path(path).open("r+b") as file:
        file.write(content)
        file.truncate()


if __name__ == "__main__":
    main()
