#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have directories, files, links and what is to be absent as a role declares them.

Why not C(ansible.builtin.file), C(template) and C(copy): each item of a loop is a module of its own on the machine, a
file two or three of them; this is one for all. And C(copy) has a new file there for a moment before its mode is set.
Measured (November 2026, a connection to the same computer, two busy cores, the least of five: three directories, five
templates and two paths to be absent): where all is to be made 0.5 s of the processor beside 4.5 s, and 1.4 s beside
14.7 s until it is done; where nothing is, 0.5 s beside 4.4 s, and 2.3 s beside 15.1 s.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: managed_places
short_description: Have directories, files and links as declared
description:
  - What the action C(managed) calls with a role's data.
  - Directories come first, then files, links and what is to be absent, each in the order in which it is named.
  - A file is replaced in one step, and has its owner and mode before it is there. So is a link in its place.
    A directory behind a link stays there.
  - Of what is to be absent a directory goes with all that is in it. A unit of systemd's is stopped and disabled before.
options:
  directories:
    type: list
    elements: dict
    default: []
    description: Directories, made where they are absent.
    suboptions: &place
      path: {type: path, required: true, description: Where it is.}
      owner: {type: str, required: true, description: 'Whose it is, by name or number.'}
      group: {type: str, required: true, description: 'Of which group, by name or number.'}
      mode: {type: str, required: true, description: 'Its mode, in octal.'}
  files:
    type: list
    elements: dict
    default: []
    description: Files.
    suboptions:
      <<: *place
      shown: {type: bool, default: false, description: 'Whether its difference may be shown.'}
      validate: {type: str, default: '', description: 'A command that has to accept a new text, with %s for the file.'}
  texts:
    type: str
    description:
      - What is in each of the files, as a list in JSON. Null for one that something else makes; its owner and mode are
        set where it is there. One string, as of a list each would be hidden from the differences that may be shown.
  links: {type: dict, default: {}, description: 'Where each link leads, by its path.'}
  absent: {type: list, elements: path, default: [], description: What is not to be there.}
"""

RETURN = """
written: {type: list, elements: str, returned: always, description: 'Directories, files and links that differed.'}
removed: {type: list, elements: str, returned: always, description: What was to be absent and was there.}
"""


class Places:
    """What is done on this machine."""

    def __init__(self, module):
        self.module = module
        self.written = []
        self.removed = []
        self.diff = []
        self.units = False

    def told(self):
        """Return what was done so far."""
        told = {"changed": bool(self.written or self.removed), "written": self.written, "removed": self.removed}
        return {**told, "diff": self.diff} if self.diff else told

    def own(self, path, entry):
        """Set owner, group and mode; tell whether one of them differed."""
        wanted = {key: entry[key] for key in ("owner", "group", "mode")}
        wanted = self.module.load_file_common_arguments(wanted, path=str(path))
        return self.module.set_fs_attributes_if_different(wanted, False)

    def directory(self, path, entry):
        """Have a directory."""
        path = Path(os.path.realpath(path))
        new = not path.is_dir()
        if new and not self.module.check_mode:
            path.mkdir(parents=True)
        if self.own(path, entry) or new:
            self.written.append(entry["path"])

    def file(self, path, entry, text):
        """Have a file with this text, or, without one, only its owner and mode."""
        there = path.is_file() and not path.is_symlink()
        content = path.read_bytes() if there and text is not None else None
        if text is None or content == text.encode():
            if there and self.own(path, entry):
                self.written.append(entry["path"])
            return
        if not self.module.check_mode:
            self.replace(path, entry, text)
        self.written.append(entry["path"])
        if self.module._diff and entry["shown"]:
            before = (content or b"").decode(errors="replace")
            self.diff.append({"before_header": str(path), "after_header": str(path), "before": before, "after": text})

    def replace(self, path, entry, text):
        """Put a file in the place of whatever is there."""
        new = fresh(path)
        try:
            new.touch(mode=0o600, exist_ok=False)
            new.write_bytes(text.encode())
            self.own(new, entry)
            if entry["validate"]:
                self.validate(path, entry["validate"].replace("%s", str(new)))
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)

    def validate(self, path, command):
        """End here where the command does not accept what is to be put at a path."""
        code, out, err = self.module.run_command(command)
        if code:
            self.fail(path, f"not written, because it is refused by {command!r}: {(err or out).strip()}")

    def link(self, path, target):
        """Have a link."""
        if path.is_symlink() and str(path.readlink()) == target:
            return
        if not self.module.check_mode:
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            new = fresh(path)
            new.symlink_to(target)
            new.replace(path)
        self.written.append(str(path))

    def remove(self, path):
        """Have nothing at a path."""
        if not os.path.lexists(path):
            return
        if not self.module.check_mode:
            if path.suffix == ".service":
                self.stop(path)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        self.removed.append(str(path))

    def stop(self, path):
        """Stop and disable what a unit's file runs."""
        code, _, err = self.module.run_command(["systemctl", "disable", "--now", path.name])
        if code not in (0, 5):  # of a file that is no unit nothing runs
            self.fail(path, f"not removed, because it could not be stopped: {err.strip()}")
        self.units = True

    def fail(self, path, problem):
        """End here."""
        self.module.fail_json(msg=f"{path}: {problem}. What comes after it was not done, either", **self.told())


def fresh(path):
    """Return where what is to be put at a path is made: nothing is there."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    return new


def main():
    """Run the module."""
    place = {name: {"type": "str", "required": True} for name in ("owner", "group", "mode")}
    place["path"] = {"type": "path", "required": True}
    file = {**place, "shown": {"type": "bool", "default": False}, "validate": {"type": "str", "default": ""}}
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "dict", "options": place, "default": []},
            "files": {"type": "list", "elements": "dict", "options": file, "default": []},
            "texts": {"type": "str", "no_log": True},
            "links": {"type": "dict", "default": {}},
            "absent": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    asked, places, path = module.params, Places(module), ""
    os.umask(0o022)  # for the directories above those that are named
    try:
        for entry in asked["directories"]:
            path = entry["path"]
            places.directory(path, entry)
        for entry, text in zip(asked["files"], json.loads(asked["texts"] or "[]"), strict=True):
            path = entry["path"]
            places.file(Path(path), entry, text)
        for path, target in asked["links"].items():
            places.link(Path(path), target)
        for path in asked["absent"]:
            places.remove(Path(path))
    except OSError as error:
        places.fail(path, error.strerror or error)
    if places.units:
        module.run_command(["systemctl", "daemon-reload"], check_rc=True)
    module.exit_json(**places.told())


if __name__ == "__main__":
    main()
