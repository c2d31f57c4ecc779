"""One entry of ``cluster_users`` or ``cluster_groups``: what may stand in it, and how a mistake is told. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from provision.errors import did_you_mean
from provision.model.numbers import whole
from provision.model.users import SUBORDINATE, Group, User, UsersError

#: Numbers below are the system's own: UID_MIN of login.defs(5).
LOWEST = 1000
#: Numbers that mean something else: nobody, "no change" to the kernel in 16 and in 32 bits, and Slurm's own.
TAKEN = {65534: "nobody's", 65535: "no user's (16 bits)", 2**32 - 1: "no user's (32 bits)", 64030: "slurm's"}

#: Groups of the system whose members are root, or can read all of a disk; docker and sudo may be meant.
_ROOTS = ("root", "shadow", "disk", "kmem")

#: Where the derived ranges begin, in ranges: those below are left to ``useradd``, which begins at 100000.
_FIRST_RANGE = 32
#: As many ranges as there are below the last number of 32 bits; a number beyond begins again, and may collide.
_RANGES = 59000

#: Users and groups that Debian, or what is installed here, makes for itself.
SYSTEM = frozenset(
    """
    root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody nogroup _apt
    systemd-network systemd-resolve systemd-timesync systemd-coredump systemd-journal messagebus sshd _chrony chrony
    polkitd syslog uuidd tcpdump tss landscape pollinate fwupd-refresh usbmux dnsmasq avahi ntp statd _rpc postfix
    adm tty disk kmem dialout fax voice cdrom floppy tape sudo audio dip operator src shadow utmp video sasl plugdev
    staff users input sgx kvm render crontab netdev ssl-cert ssh _ssh docker munge slurm mysql sssd nvidia-persistenced
    """.split()  # noqa: SIM905 - read as a text, not as a list of quotes
)

_NAME = re.compile(r"[a-z_]([a-z0-9_.-]{0,30}[a-z0-9_-])?")
_PATH = re.compile(r"(/[A-Za-z0-9_][A-Za-z0-9._+@-]*)+")
_KEY = re.compile(
    r"(?:(?P<options>[^\s\"]+(?:\"[^\"]*\"[^\s\"]*)*)\s+)?"
    r"(?P<type>ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)|sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com)"
    r"\s+(?P<text>[A-Za-z0-9+/]+={0,2})(?:\s+\S.*)?"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
#: Homes are below a directory of their own, never a directory that the system lives in.
_NO_HOMES = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")

USER_KEYS = (
    "name", "uid", "group", "groups", "comment", "shell", "home", "authorized_keys", "password_lock", "subordinate_ids",
    "state",
)  # fmt: skip
GROUP_KEYS = ("name", "gid", "state")


@dataclass(frozen=True)
class Entry:
    """One entry of a list, and how to complain about it."""

    variable: str
    number: int
    values: Mapping[str, Any]

    def refuse(self, key: str, problem: str, fix: str) -> NoReturn:
        raise UsersError(self.variable, self.number, key, f"{self.variable}: {self.label}: {problem}", fix)

    @property
    def label(self) -> str:
        name = self.values.get("name")
        return name if isinstance(name, str) and _NAME.fullmatch(name) else f"entry {self.number + 1}"

    def name(self) -> str:
        name = self.values.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self.refuse(
                "name",
                f"name is {name!r:.60}: it must be lower-case letters, digits, '.', '_' and '-', 32 at most, beginning "
                "with a letter",
                "name the user as the machines would (useradd(8)); quote a name that YAML takes for something else",
            )
        if name in SYSTEM:
            self.refuse("name", f"{name} is one of the system's own", "choose another name")
        return name

    def number_of(self, key: str) -> int:
        value = self.values.get(key)
        try:
            found = whole(value)
        except ValueError:
            self.refuse(
                key,
                f"{key} is {value!r:.40}: it must be a whole number of {LOWEST} or more" if key in self.values
                else f"it has no {key}",
                f"give it the {key} that it has on every machine and on shared storage",
            )  # fmt: skip
        if found < LOWEST:
            self.refuse(
                key, f"{key} {found} is the system's: those of people begin at {LOWEST}", f"choose another {key}"
            )
        if found in TAKEN or found >= 2**32:
            self.refuse(key, f"{key} {found} is {TAKEN.get(found, 'beyond 32 bits')}", f"choose another {key}")
        return found

    def absent(self) -> bool:
        state = self.values.get("state", "present")
        if state not in ("present", "absent"):
            self.refuse("state", f"state is {state!r:.40}", "write state: present or state: absent")
        return bool(state == "absent")

    def path(self, key: str, default: str) -> str:
        path = self.values.get(key, default)
        if not isinstance(path, str) or not _PATH.fullmatch(path) or ".." in path.split("/"):
            self.refuse(key, f"{key} is {path!r:.60}: it must be an absolute path", f"write it as {key}: {default}")
        return path


def entries_from(variable: str, value: object, keys: Sequence[str]) -> list[Entry]:
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        problem = f"{variable} is not a list of mappings"
        raise UsersError(
            variable, None, "", problem, f"write it in group_vars/all.yml, as '- {{name: ..., {keys[1]}: ...}}'"
        )
    entries = [Entry(variable, number, item) for number, item in enumerate(value)]
    for entry in entries:
        for key in entry.values:
            if key not in keys:
                fix = did_you_mean(str(key), keys, f"an entry has {', '.join(keys)}")
                entry.refuse(str(key), f"there is no {str(key)[:40]!r}", fix)
    return entries


def group_from(entry: Entry) -> Group:
    name, absent = entry.name(), entry.absent()
    return Group(name, -1 if absent and "gid" not in entry.values else entry.number_of("gid"), absent)


def user_from(entry: Entry, groups: Mapping[str, Group]) -> User:
    name = entry.name()
    if entry.absent():
        return User(name, absent=True)
    uid = entry.number_of("uid")
    group = entry.values.get("group", name)
    names = entry.values.get("groups", [])
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    if not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in (*names, group)):
        entry.refuse("groups", "group and groups must be names", "write groups as a list of names: [physics]")
    for one in names:
        if not re.fullmatch(r"[a-z_][a-z0-9_.-]{0,31}", one):
            entry.refuse("groups", f"{one!r:.60} cannot be a group's name", "correct the name of the group")
        if one in _ROOTS:
            entry.refuse("groups", f"{one} makes of its members what root is", f"take {one} out; sudo is what says so")
    for one in (group, *names):
        if one in groups and groups[one].absent:
            entry.refuse(
                "groups" if one in names else "group", f"its group {one} is to be removed", "take it out of there"
            )
    if group != name and group not in groups:
        entry.refuse(
            "group", f"its group {group!r:.40} is in no entry of cluster_groups",
            "declare it, with its gid, or leave group out: it then has a group of its own name and number",
        )  # fmt: skip
    shell, home = entry.path("shell", "/bin/bash"), entry.path("home", f"/home/{name}")
    if home.count("/") < 2 or home.startswith(tuple(f"{place}/" for place in _NO_HOMES)):
        entry.refuse("home", f"home is {home}, which is no place for one", f"write it as home: /home/{name}")
    return User(
        name=name,
        uid=uid,
        group=str(group),
        groups=tuple(sorted({str(one) for one in names} - {group})),
        comment=_comment(entry),
        shell=shell,
        home=home,
        authorized_keys=_keys(entry),
        password_lock=_truth(entry, "password_lock"),
        subordinate=_first_subordinate(entry, uid),
    )


def _comment(entry: Entry) -> str:
    text = entry.values.get("comment", "")
    if not isinstance(text, str) or ":" in text or _CONTROL.search(text) or len(text) > 200:
        entry.refuse("comment", "its comment cannot stand in /etc/passwd", "write a line of text without ':'")
    return text.strip()


def _truth(entry: Entry, key: str) -> bool:
    value = entry.values.get(key, True)
    if not isinstance(value, bool):
        entry.refuse(key, f"{key} is {value!r:.40}", f"write {key}: true or {key}: false")
    return bool(value)


def _keys(entry: Entry) -> tuple[str, ...]:
    """Return the lines of an authorized_keys file, none of which is ever shown: somebody may paste the private half."""
    lines = entry.values.get("authorized_keys", [])
    lines = [lines] if isinstance(lines, str) else lines
    if not isinstance(lines, list | tuple):
        entry.refuse("authorized_keys", "authorized_keys is no list", "write one public key a line of the list")
    found = [str(line).strip() for line in lines]
    for place, line in enumerate(found, start=1):
        if "PRIVATE KEY" in line:
            entry.refuse(
                "authorized_keys", f"key {place} is a private key", "give its public half, and make a new pair"
            )
        match = None if _CONTROL.search(line) or len(line) > 8192 else _KEY.fullmatch(line)
        if match is None or not _says(match["text"], match["type"]):
            entry.refuse(
                "authorized_keys", f"key {place} is no public key of OpenSSH's",
                "copy the whole line of the .pub file: type, key, comment",
            )  # fmt: skip
    return tuple(found)


def _says(text: str, kind: str) -> bool:
    """Tell whether a key is whole as far as it tells itself, and of the kind that stands before it."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    parts = []
    while data:
        size = int.from_bytes(data[:4], "big")
        if len(data) < 4 + size:
            return False
        parts.append(data[4 : 4 + size])
        data = data[4 + size :]
    return len(parts) > 1 and parts[0] == kind.encode()


def _first_subordinate(entry: Entry, uid: int) -> int:
    if "subordinate_ids" not in entry.values:
        return SUBORDINATE * (_FIRST_RANGE + (uid - LOWEST) % _RANGES)
    first = entry.number_of("subordinate_ids")
    if first < 65536 or first + SUBORDINATE >= 2**32:
        entry.refuse(
            "subordinate_ids", f"subordinate_ids {first} leaves no room for {SUBORDINATE} numbers that are nobody's",
            f"give the first of {SUBORDINATE} free numbers, above 65535",
        )  # fmt: skip
    return first
