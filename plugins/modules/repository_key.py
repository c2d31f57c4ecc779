#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have the key that a package repository is signed with, and no other key.

Why not C(ansible.builtin.get_url) with a checksum: that is one of a file, and the same key is another file each
time that it is exported. This is for keys that cannot come with a role: of mirrors that sign anew, and of DOCA.
The last was looked for in Debian's packages of keys (extrepo-offline-data 1.0.7, all keyrings of Debian 12), which do
not have it. No figure: safety, because a key is written only after its fingerprint was compared.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ansible.module_utils import site_network
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.openpgp_keys import KeyProblemError, armoured, dearmoured, fingerprints, read, unexpected
from ansible.module_utils.urls import fetch_url

DOCUMENTATION = """
module: repository_key
short_description: Have the key that a package repository is signed with, and no other key
description:
  - Fetches a public key, works out its fingerprint, and writes it only if that is one of those expected. Nothing else
    is needed on the machine, not even gpg; apt reads the file as it is.
  - A file that holds the expected keys is left as it is, so that a later run needs no network; its mode and owner are
    set, as of C(ansible.builtin.copy).
options:
  path: {type: path, required: true, description: 'The file, ASCII-armoured: its name ends in .asc for apt.'}
  url: {type: str, default: "", description: 'Where the key is; file:// is a file of the machine.'}
  fingerprints:
    type: list
    elements: str
    required: true
    description: Fingerprints, each of 40 hexadecimal digits, that primary keys in the file may have.
"""

RETURN = """
fingerprints: {type: list, returned: always, description: Fingerprints of the primary keys in the file.}
"""


def there(path, expected):
    """Return the fingerprints in the file if they are as expected, else nothing."""
    try:
        found = read(Path(path).read_bytes())
    except OSError:
        return []
    return [] if unexpected(found, expected) else found


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "url": {"type": "str", "default": ""},
            "fingerprints": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
        add_file_common_args=True,
    )
    attributes = module.load_file_common_arguments(module.params)
    path, url, expected = module.params["path"], module.params["url"], module.params["fingerprints"]
    found = there(path, expected)
    if found:
        module.exit_json(changed=module.set_fs_attributes_if_different(attributes, False), fingerprints=found)
    if url.startswith("file://"):
        try:
            data = Path(url[7:]).read_bytes()
        except OSError as error:
            module.fail_json(msg=f"{url} cannot be read: {error.strerror}")
    else:
        site_network.adopt()
        response, info = fetch_url(module, url, timeout=30)
        if info["status"] != 200:
            module.fail_json(
                msg=f"the key {url} could not be fetched: {info['msg']}. Fix: name a mirror that this machine reaches"
            )
        data = response.read()
    try:
        found = fingerprints(data)
    except KeyProblemError as error:
        module.fail_json(msg=f"{url or 'the key'} is no key to trust: {error}")
    foreign = unexpected(found, expected)
    if foreign:
        module.fail_json(
            msg=f"{url} has the fingerprint {', '.join(foreign)}, expected {', '.join(expected)}. Nothing was "
            "written. Fix: find out who signs the repository, then correct the key or the fingerprint"
        )
    if not module.check_mode:
        Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle, new = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(armoured(dearmoured(data)))
        Path(new).chmod(0o644)
        module.atomic_move(new, path)
        Path(path).chmod(0o644)
        module.set_fs_attributes_if_different(attributes, True)
    module.exit_json(changed=True, fingerprints=found)


if __name__ == "__main__":
    main()
