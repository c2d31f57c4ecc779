"""Who changes what in the registry of users' images: munge's word for who it is, and what is given for it.

Everybody may pull. Who pushes or removes shows a munge credential as the password, which the cluster's podman makes
(docker-credential-clusterctl): the user and the time are in it, so that there is no password to keep. Standard library
only.
"""

import base64
import binascii
import hashlib
import os
import pwd
import re
import subprocess
import threading

#: Seconds for which a credential that munge has accepted is good: the longest push.
CREDENTIAL = 3600
#: Credentials that are remembered; with more, the oldest are forgotten.
REMEMBERED = 10_000
#: Seconds for one question to munge.
ANSWER = 10
#: The first number of an ordinary user.
ORDINARY = 1000

#: What a registry takes as the first part of an image's name.
PROJECT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
#: Words for removing: docker-registry's, and what skopeo says, which looks first for what a tag names.
REMOVES = frozenset({"delete", "*"})
CHANGES = REMOVES | {"push"}
SCOPE = re.compile(r"(repository|registry):([^:]{1,255}):([a-z,*]{1,64})")


class RefusedError(Exception):
    """What is not given, in words for the user."""


def decoded(credential, run=subprocess.run):
    """Return the number of the user who made a munge credential, when (seconds since 1970), and what is in it."""
    words = ["unmunge", "--numeric", "--keys=STATUS,ENCODE_TIME,UID"]
    try:
        done = run(words, input=credential.encode(), capture_output=True, timeout=ANSWER, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise RefusedError(f"munge does not answer on {os.uname().nodename}: tell the administrators") from problem
    told, _, payload = done.stdout.decode("ascii", "replace").partition("\n\n")
    keys = dict(re.findall(r"^([A-Z_]+): +(-?[0-9]+)$", told, re.MULTILINE))
    if done.returncode or keys.get("STATUS") != "0":
        said = done.stderr.decode("ascii", "replace").strip().splitlines() or [f"status {done.returncode}"]
        raise RefusedError(f"munge does not accept who you are ({said[-1][:100]}): push again")
    return int(keys["UID"]), int(keys["ENCODE_TIME"]), payload.rstrip("\n")


class People:
    """Who has shown which credential.

    munge accepts each credential once, and one push shows it several times: so that those that it has accepted are
    remembered, as hashes.
    """

    def __init__(self, purpose, decode=decoded, name=lambda uid: pwd.getpwuid(uid).pw_name):
        self._purpose, self._decode, self._name = purpose, decode, name
        self._known, self._asking = {}, {}
        self._lock = threading.Lock()

    def who(self, credential, now):
        """Return the name of the user who made the credential; refuse what munge does not vouch for.

        munge is asked once for a credential, however many show it at once, and a slow answer keeps no other waiting.
        """
        key = hashlib.sha256(credential.encode()).digest()
        with self._lock:
            found, asking = self._known.get(key), self._asking.setdefault(key, threading.Lock())
        try:
            with asking:
                found = found or self._known.get(key) or self._asked(credential)
                with self._lock:
                    self._remember(key, found)
        finally:
            with self._lock:
                self._asking.pop(key, None)
        user, until = found
        if now >= until:
            raise RefusedError("this push has lasted an hour: push again, what is there already is not sent again")
        return user

    def _asked(self, credential):
        uid, made, payload = self._decode(credential)
        if payload != self._purpose:
            raise RefusedError("this munge credential was made for something else")
        if uid < ORDINARY:
            raise RefusedError(f"the user of number {uid} is no ordinary one, and has no images here")
        try:
            user = self._name(uid)
        except KeyError as problem:
            raise RefusedError(f"nobody on {os.uname().nodename} has the number {uid}") from problem
        if not PROJECT.fullmatch(user):
            raise RefusedError(f"{user} cannot be part of an image's name (a-z, 0-9, and . _ - between them)")
        return user, made + CREDENTIAL

    def _remember(self, key, found):
        if key not in self._known and len(self._known) >= REMEMBERED:
            # One is kept after its end: of what is forgotten, munge would say that it was used before.
            late = sorted(self._known, key=lambda one: self._known[one][1])
            for one in late[: REMEMBERED // 10]:
                del self._known[one]
        self._known[key] = found


def password(header):
    """Return the password of an Authorization header, nothing where there is none."""
    kind, _, text = (header or "").partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(text, validate=True).decode("ascii").partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def wanted(scopes):
    """Return what is asked for: of each repository or registry its kind, its name and what is to be done."""
    found = [SCOPE.fullmatch(scope) for text in scopes for scope in text.split()]
    if len(found) > 64 or None in found:
        raise RefusedError("this is not asked as registries' clients ask")
    return [(one[1], one[2], set(one[3].split(","))) for one in found if one]


def granted(asked, who, room, registry):
    """Return the access that a token gives.

    ``who()`` names the user, and is asked only where something is changed; ``room(user)`` refuses those who have no
    room for what they push.
    """
    access = []
    for kind, name, actions in asked:
        given = actions & ({"pull"} if kind == "repository" else {"*"} if name == "catalog" else set())
        if kind == "repository" and actions & CHANGES:
            user = who()
            parts = name.split("/")
            if parts[0] != user or len(parts) < 2 or not all(map(PROJECT.fullmatch, parts)):
                if "push" not in actions:
                    raise RefusedError(f"{user} removes what is in {registry}/{user}/ only")
                better = f"{registry}/{user}/{name.rpartition('/')[2]}"
                raise RefusedError(
                    f"{user} pushes to {registry}/{user}/ only: docker tag IMAGE {better}; docker push {better}"
                )
            if "push" in actions:
                room(user)
                given.add("push")
            if actions & REMOVES:
                given |= {"pull", "delete"}
        if given:
            access.append({"type": kind, "name": name, "actions": sorted(given)})
    return access
