#!/usr/bin/python
# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make, compare and move a key that machines of a cluster share, without ever showing it.

Why not C(ansible.builtin.slurp) and C(ansible.builtin.copy): the key would pass through the control node, its
memory, its temporary files and the answers of its modules, which C(no_log) only keeps from being shown. This saves
the key from being anywhere but on the machines that need it. No figure: safety, as who has the key is everybody.
"""

from __future__ import annotations

import grp
import hmac
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.machine_key import fingerprint

DOCUMENTATION = """
module: shared_key
short_description: Make, compare and move a key that machines share without showing it
description:
  - No result of any action contains the key. C(fingerprint) answers with a salted hash, C(seal) with the key encrypted
    to a certificate whose private half never leaves the machine that made it.
options:
  action:
    type: str
    required: true
    choices: [make, fingerprint, request, seal, install]
    description:
      - C(make) a key where there is none, kept for root until C(owner) and C(group) exist; answers as C(fingerprint).
        It is random bytes, or, with C(name), a private key with the certificate of that name that it has signed.
      - C(fingerprint) hashes the key with a salt, a new one unless C(salt) is given.
      - C(request) compares with a salted hash; where the key differs, C(certificate) is what to seal the right one for.
      - C(seal) encrypts the key to C(certificate).
      - C(install) decrypts C(sealed) and puts the key in its place.
  path: {type: path, required: true, description: The key's file.}
  owner: {type: str, default: root, description: Whose file it is. Its directory belongs to the same user.}
  group: {type: str, default: root, description: The file's group.}
  mode: {type: str, default: "0400", description: Mode of the key's file.}
  bytes: {type: int, default: 1024, description: Length of a new key of random bytes.}
  name: {type: str, default: "", description: The name that a new certificate is for.}
  salt: {type: str, default: "", description: Salt of the fingerprint, in hexadecimal.}
  fingerprint: {type: str, default: "", description: Fingerprint of the key that the machine should have.}
  certificate: {type: str, default: "", description: What to seal the key for.}
  sealed: {type: str, default: "", description: The sealed key.}
"""


#: In memory, and only root's: the private half of a request lives here for the seconds between asking and installing.
WAITING = Path("/run/clusterctl-key")
MINIMUM = 32  # munged(8): a shorter key is refused
#: Days for which a certificate is good. Nobody renews it: it goes with the cluster.
DAYS = "7300"


class KeyProblemError(Exception):
    """What could not be done."""


def read(path):
    """Return the key, or None where there is none worth the name."""
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    return key if len(key) >= MINIMUM else None


def owner(module):
    """Return whose the key is, by uid and gid; root's until a package has made the user."""
    try:
        return pwd.getpwnam(module.params["owner"]).pw_uid, grp.getgrnam(module.params["group"]).gr_gid
    except KeyError:
        return 0, 0


def write(module, path, key, mode):
    """Put the key in its place in one step, so that nobody ever reads half of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    uid, gid = owner(module)
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(key)
        os.fchown(descriptor, uid, gid)
        os.fchmod(descriptor, mode)
        stream.flush()
        os.fsync(descriptor)
    new.replace(path)
    os.chown(path.parent, uid, -1)


def openssl(*words, stdin=None):
    """Run openssl and return what it answers."""
    try:
        # What it reads and writes is here; a key is no text, so that the helper for questions is none for it.
        done = subprocess.run(["openssl", *words], input=stdin, capture_output=True, timeout=60)
    except subprocess.TimeoutExpired as error:
        raise KeyProblemError(f"openssl {words[0]} did not end in {error.timeout} s") from error
    if done.returncode:
        raise KeyProblemError(f"openssl {words[0]} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def self_signed(days, subject, *words):
    """Run openssl so that it makes a private key and a certificate, and return what it prints."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    return openssl("req", "-x509", *key, "-days", days, "-subj", f"/CN={subject}", *words)


def certificate(name):
    """Return a private key and its certificate, one after the other."""
    return self_signed(DAYS, name, "-addext", f"subjectAltName=DNS:{name}", "-keyout", "-")


def make(module, path, mode):
    """Make a key where there is none, and answer with the fingerprint."""
    missing = read(path) is None
    if missing and not module.check_mode:
        name = module.params["name"]
        key = certificate(name) if name else secrets.token_bytes(max(module.params["bytes"], MINIMUM))
        write(module, path, key, mode)
    return {**tell(module, path, mode), "changed": missing}


def tell(module, path, mode):
    """Answer with the key's fingerprint; with an empty one where check mode found no key."""
    salt, key = module.params["salt"] or secrets.token_hex(16), read(path)
    return {"changed": False, "salt": salt, "fingerprint": fingerprint(key, salt) if key else ""}


def request(module, path, mode):
    """Compare the key, repair its owner and mode, and ask for the right one where it differs."""
    key, wanted = read(path), module.params["fingerprint"]
    if not wanted and not module.check_mode:
        raise KeyProblemError(f"the controller has no {path}. Fix: provision this stage on the controller first")
    if key and wanted and hmac.compare_digest(fingerprint(key, module.params["salt"]), wanted):
        found = path.stat()
        right = (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (*owner(module), mode)
        if not right and not module.check_mode:
            uid, gid = owner(module)
            os.chown(path, uid, gid)
            path.chmod(mode)
            os.chown(path.parent, uid, -1)
        return {"changed": not right, "same": True}
    if module.check_mode:
        return {"changed": True, "same": False}
    shutil.rmtree(WAITING, ignore_errors=True)
    WAITING.mkdir(0o700)
    private, public = WAITING / "key", WAITING / "certificate"
    self_signed("2", "shared key", "-keyout", private, "-out", public)
    return {"changed": False, "same": False, "certificate": public.read_text(encoding="ascii")}


def seal(module, path, mode):
    """Answer with the key encrypted to the certificate."""
    key = read(path)
    if key is None:
        raise KeyProblemError(f"there is no key in {path}")
    with tempfile.NamedTemporaryFile("w", encoding="ascii", dir="/run") as public:
        public.write(module.params["certificate"])
        public.flush()
        sealed = openssl("cms", "-encrypt", "-binary", "-aes256", "-outform", "PEM", public.name, stdin=key)
    return {"changed": False, "sealed": sealed.decode("ascii")}


def install(module, path, mode):
    """Decrypt the key, put it in its place, and forget how it was decrypted."""
    private, public = WAITING / "key", WAITING / "certificate"
    try:
        key = openssl(
            "cms",
            "-decrypt",
            "-binary",
            "-inform",
            "PEM",
            "-inkey",
            private,
            "-recip",
            public,
            stdin=module.params["sealed"].encode("ascii"),
        )
    finally:
        shutil.rmtree(WAITING, ignore_errors=True)
    if len(key) < MINIMUM:
        raise KeyProblemError("what arrived is no key")
    write(module, path, key, mode)
    return {"changed": True}


ACTIONS = {"make": make, "fingerprint": tell, "request": request, "seal": seal, "install": install}


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "action": {"type": "str", "required": True, "choices": sorted(ACTIONS)},
            "path": {"type": "path", "required": True},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str", "default": "root"},
            "mode": {"type": "str", "default": "0400"},
            "bytes": {"type": "int", "default": 1024},
            "name": {"type": "str", "default": ""},
            "salt": {"type": "str", "default": ""},
            "fingerprint": {"type": "str", "default": ""},
            "certificate": {"type": "str", "default": ""},
            "sealed": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        result = ACTIONS[module.params["action"]](module, Path(module.params["path"]), int(module.params["mode"], 8))
    except (KeyProblemError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
