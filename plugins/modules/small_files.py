#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have several small files, and the directories they are in, at once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: small_files
short_description: Have several small files and directories at once
description:
  - Every task costs a connection, and every item of a loop another. This writes what one service needs in one go, each
    file in one step, so that nobody reads half of it.
  - Not for secrets; a difference is shown where differences are asked for.
options:
  directories:
    type: list
    elements: dict
    default: []
    description: Directories, made before the files and in this order.
    suboptions: &attributes
      path: {type: path, required: true, description: Where.}
      mode: {type: str, description: 'Mode; 0755 for directories and 0644 for files where it is left out.'}
      owner: {type: str, default: root, description: Name or number.}
      group: {type: str, default: root, description: Name or number.}
  files:
    type: list
    elements: dict
    default: []
    description: Files.
    suboptions:
      <<: *attributes
      content: {type: str, required: true, description: All of it.}
      validate: {type: str, description: 'Command that must accept the new file, as %s, before it takes its place.'}
  links:
    type: list
    elements: dict
    default: []
    description: Symbolic links, made after the files.
    suboptions:
      path: {type: path, required: true, description: Where.}
      target: {type: str, required: true, description: What it leads to.}
  absent: {type: list, elements: path, default: [], description: 'Files and links that are not to be there.'}
"""

RETURN = """
paths: {type: list, returned: always, description: What was changed.}
"""

_ATTRIBUTES = {
    "path": {"type": "path", "required": True},
    "mode": {"type": "str"},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
}


class Writer:
    """Writes files through the module's own helpers, which know check mode and numbers for names."""

    def __init__(self, module):
        self.module = module
        self.paths = []
        self.diff = []

    def directory(self, item):
        """Have one directory."""
        path, made = item["path"], False
        if not Path(path).is_dir():
            made = True
            self.diff.append({"before_header": path, "after_header": path, "before": "", "after": "directory\n"})
            if not self.module.check_mode:
                Path(path).mkdir(parents=True)
        self._attributes(item, "0755", made)

    def file(self, item):
        """Have one file."""
        path = Path(item["path"])
        try:
            before = path.read_bytes()
        except FileNotFoundError:
            before = None
        after = item["content"].encode()
        if before != after:
            shown = {"before_header": str(path), "after_header": str(path), "after": item["content"]}
            self.diff.append({**shown, "before": (before or b"").decode(errors="replace")})
            if not self.module.check_mode:
                self._write(path, after, item["validate"])
        self._attributes(item, "0644", before != after)

    def link(self, item):
        """Have one symbolic link; a file in its place is left to people."""
        path, target = Path(item["path"]), item["target"]
        if path.is_symlink() and str(path.readlink()) == target:
            return
        if path.exists() and not path.is_symlink():
            self.module.fail_json(msg=f"{path} is there already and no link to {target}; move it away")
        self.paths.append(str(path))
        shown = {"before_header": str(path), "after_header": str(path)}
        self.diff.append({**shown, "before": "", "after": f"link to {target}\n"})
        if not self.module.check_mode:
            path.unlink(missing_ok=True)
            path.symlink_to(target)

    def absent(self, path):
        """Have no such file; a directory in its place is left to people."""
        if not os.path.lexists(path):
            return
        if Path(path).is_dir() and not Path(path).is_symlink():
            self.module.fail_json(msg=f"{path} is a directory; move it away")
        self.paths.append(path)
        self.diff.append({"before_header": path, "after_header": path, "before": "file\n", "after": ""})
        if not self.module.check_mode:
            Path(path).unlink()

    def _write(self, path, content, validate):
        descriptor, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            if validate:
                code, output, problem = self.module.run_command(validate.replace("%s", new))
                if code:
                    self.module.fail_json(msg=f"{path}: not accepted: {(problem or output).strip()}")
            if path.exists():
                # What the file is allowed is kept until its attributes are set, so nobody reads it meanwhile.
                found = path.stat()
                os.chown(new, found.st_uid, found.st_gid)
            self.module.atomic_move(new, str(path))
        finally:
            Path(new).unlink(missing_ok=True)

    def _attributes(self, item, mode, changed):
        path = item["path"]
        if Path(path).exists():
            changed = self.module.set_owner_if_different(path, item["owner"], changed)
            changed = self.module.set_group_if_different(path, item["group"], changed)
            changed = self.module.set_mode_if_different(path, item["mode"] or mode, changed)
        if changed:
            self.paths.append(path)


def main():
    """Run the module."""
    content = {"content": {"type": "str", "required": True}, "validate": {"type": "str"}}
    links = {"path": {"type": "path", "required": True}, "target": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "dict", "default": [], "options": dict(_ATTRIBUTES)},
            "files": {"type": "list", "elements": "dict", "default": [], "options": {**_ATTRIBUTES, **content}},
            "links": {"type": "list", "elements": "dict", "default": [], "options": links},
            "absent": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    writer = Writer(module)
    try:
        for item in module.params["directories"]:
            writer.directory(item)
        for item in module.params["files"]:
            writer.file(item)
        for item in module.params["links"]:
            writer.link(item)
        for item in module.params["absent"]:
            writer.absent(item)
    except OSError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(writer.paths), paths=writer.paths, diff=writer.diff)


if __name__ == "__main__":
    main()
