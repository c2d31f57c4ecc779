#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a machine's package manager whether a driver could be installed, without changing anything there. Python 3.8.

Why not C(ansible.builtin.apt) in check mode: it asks with the machine's own sources and lists, which would have to be
changed first. This saves a drain, and a half-changed machine, where the package manager
refuses. No figure: safety, as nothing may be changed to find out that nothing can be.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_commands import run

DOCUMENTATION = """
module: driver_resolved
short_description: Ask whether packages could be installed, in directories of the question's own
description:
  - The machine's own sources, preferences and package lists are copied to a directory, the new files are put beside
    them there, and apt is asked with that directory in place of its own. Neither C(/etc) nor the machine's
    package lists are touched; what is installed is read.
options:
  directory: {type: path, required: true, description: A directory of the question's own. Who made it removes it.}
  files: {type: dict, default: {}, description: 'Path on the machine: text of the file that will be there.'}
  absent: {type: list, elements: str, default: [], description: Paths of files that will be gone.}
  key: {type: str, default: "", description: 'The path that files name as the key, which is key.asc in the directory.'}
  offered: {type: list, elements: str, default: [], description: Packages of which all versions on offer are listed.}
  install: {type: list, elements: str, default: [], description: 'Names, or name=version.'}
"""

RETURN = """
offered: {type: str, returned: always, description: 'Lines "name | version | origin".'}
problem: {type: str, returned: always, description: 'The words of a refusal, or nothing.'}
"""

#: Seconds for fetching package lists, and for each question after it.
FETCH, ASK = 420, 180

_APT = """\
Dir::State::Lists "{0}/lists";
Dir::Cache "{0}/cache";
Dir::Etc::SourceList "{0}/sources.list";
Dir::Etc::SourceParts "{0}/sources.list.d";
Dir::Etc::PreferencesParts "{0}/preferences.d";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""


def ask(command, seconds, environment=None):
    """Return exit code and output of a package manager; a code of None, and why, where it gave no answer."""
    code, text = run(command, seconds, environment={"DEBIAN_FRONTEND": "noninteractive", **(environment or {})})
    return code, text if code is not None else f"{command[0]} {text or 'is not there'}"


def laid_out(directory, places, files, absent, key):
    """Copy the machine's files of each place (path on the machine -> name below ``directory``), ours in their stead."""
    for place, name in places.items():
        target = Path(directory, name)
        target.mkdir(parents=True, exist_ok=True)
        for path in sorted(Path(place).glob("*")):
            if path.is_file() and str(path) not in files and str(path) not in absent:
                shutil.copyfile(str(path), str(target / path.name))
        for path, text in files.items():
            if os.path.dirname(path) == place:  # noqa: PTH120 - Python 3.8, and a name as it is written
                text = text.replace(key, directory + "/key.asc") if key else text
                (target / os.path.basename(path)).write_text(text, encoding="utf-8")  # noqa: PTH119


def with_apt(given):
    """Return what is on offer, and why apt would not install the packages."""
    directory = given["directory"]
    environment = {"APT_CONFIG": directory + "/apt.conf"}
    if not Path(directory, "apt.conf").exists():
        places = {"/etc/apt/" + name: name for name in ("apt.conf.d", "preferences.d", "sources.list.d")}
        laid_out(directory, places, given["files"], given["absent"], given["key"])
        lists = Path("/var/lib/apt/lists")
        # What the machine knows already need not be fetched again.
        Path(directory, "lists", "partial").mkdir(parents=True)
        Path(directory, "cache", "archives", "partial").mkdir(parents=True)
        for path in lists.glob("*"):
            if path.is_file() and path.name != "lock":
                shutil.copyfile(str(path), str(Path(directory, "lists", path.name)))
        source = Path("/etc/apt/sources.list")
        Path(directory, "sources.list").write_bytes(source.read_bytes() if source.is_file() else b"")
        Path(directory, "apt.conf.d", "zz-clusterctl").write_text(_APT.format(directory), encoding="utf-8")
        Path(directory, "apt.conf").write_text(f'Dir::Etc::Parts "{directory}/apt.conf.d";\n', encoding="utf-8")
        code, fetched = ask(["apt-get", "--quiet=2", "update"], FETCH, environment)
        if code != 0:
            return "", complaint(fetched) or "apt-get update did not work"
    offered = problem = ""
    if given["offered"]:
        offered = ask(["apt-cache", "madison", *given["offered"]], ASK, environment)[1]
    if given["install"]:
        words = ["--simulate", "--quiet", "--yes", "--no-install-recommends", "--allow-downgrades"]
        command = ["apt-get", *words, "--allow-change-held-packages", "install", *given["install"]]
        code, text = ask(command, ASK, environment)
        problem = "" if code == 0 else complaint(text)
    return offered, problem


def complaint(text):
    """Return the lines in which apt says what it cannot do."""
    wanted = re.compile(r"^(E:|W:|Error| *Depends:| *[\w.+-]+ : )|but it is not|virtual package")
    lines = [" ".join(line.split()) for line in text.splitlines() if wanted.search(line)]
    return "; ".join(lines or [" ".join(text.split())[-500:]])[:2000] if text.strip() else ""


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "files": {"type": "dict", "default": {}},
            "absent": {"type": "list", "elements": "str", "default": []},
            "key": {"type": "str", "default": "", "no_log": False},
            "offered": {"type": "list", "elements": "str", "default": []},
            "install": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    given = module.params
    # apt reads lists and keys as a user of its own.
    Path(given["directory"]).chmod(0o755)
    offered, problem = with_apt(given)
    module.exit_json(changed=False, offered=offered, problem=problem)


if __name__ == "__main__":
    main()
