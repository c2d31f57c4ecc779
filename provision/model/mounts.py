"""The file systems that machines share, and what a job sees of a node's directories. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from provision.model.users import Users

#: What the kernel and systemd call the file systems that are mounted here.
NETWORK = ("nfs4", "nfs", "lustre")
#: Mounted by the site itself: only looked at.
PRESENT = "present"
#: A directory on the machine's own disk, for everybody: scratch space.
LOCAL = "local"
FSTYPES = (*NETWORK, PRESENT, LOCAL)

#: Of NFS where nothing else is said. ``hard``: a server that is away is waited for, as a file that is cut short without
#: a word is worse; ``nconnect``: one TCP connection does not fill a fast line; ``retry``: minutes that a machine which
#: starts before its server asks for it.
NFS_OPTIONS = ("vers=4.2", "hard", "proto=tcp", "nconnect=8", "nosuid", "nodev", "retry=10")

#: Options of NFS that cost more than they give, with what they do: nfs(5).
DOUBTFUL = {
    "noac": "every write waits for the server, and data that is cached stays as stale as before",
    "soft": "a write that the server does not answer in time is lost without a word",
    "nolock": "locks hold on one machine only",
}

#: What a mount at one of these, or below it, would hide: the system, and what its container engine and Slurm rest on.
_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt/clusterctl", "/proc", "/root"),
    *("/run", "/sbin", "/sys", "/tmp", "/usr", "/var"),  # noqa: S108 - nothing is written there
)
#: Below /usr/local a site has what it likes, but for what Slurm's image has there.
_FREE = "/usr/local/"
_IMAGE = tuple(
    f"/usr/local/{name}" for name in ("bin", "etc", "include", "lib", "libexec", "man", "sbin", "share", "src")
)
#: A mount at one of these would hide what is declared or installed below it.
_ROOTS = ("/", "/opt", "/usr/local")


@dataclass(frozen=True)
class Mount:
    """One file system as the inventory declares it, on the machines of ``groups``.

    ``source`` is ``server:/directory``; empty for one of the machine's own, and where the site mounts it and nobody
    cares from where. ``options`` are mount(8)'s. ``read_only``: jobs cannot write there.
    """

    path: str
    fstype: str
    source: str = ""
    options: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    read_only: bool = False

    @property
    def server(self) -> str:
        """Whose export it is, empty for none."""
        return self.source.partition(":/")[0].strip("[]") if self.fstype in ("nfs", "nfs4") else ""

    @property
    def exported(self) -> str:
        """The directory on the server."""
        return "/" + self.source.partition(":/")[2].strip("/") if self.server else ""

    @property
    def unit(self) -> str:
        """The name of systemd's unit for it."""
        return unit_name(self.path)

    def on(self, groups: Collection[str]) -> bool:
        """Tell whether a machine in these groups has it."""
        return not set(self.groups).isdisjoint(groups)

    def as_dict(self, groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Return it as plain types, with the machines that have it and the one of them that exports it, if one does."""
        hosts = dict.fromkeys(str(host) for group in self.groups for host in groups.get(group, ()))
        served = self.server if self.server in [str(host) for host in groups.get("nfs_server", ())] else ""
        plain = {**asdict(self), "options": list(self.options), "groups": list(self.groups)}
        # The server has it at the same place as the others, so that what is made there is made where its disk is.
        hosts |= dict.fromkeys([served] if served else [])
        return {**plain, "hosts": list(hosts), "served_by": served, "exported": self.exported}


def unit_name(path: str) -> str:
    """Return the name that systemd gives the mount at a path: systemd.unit(5), "escaping"."""
    words = re.sub(r"/+", "/", path.strip("/")).replace("/", "\0")
    escaped = "".join(_escaped(character, first=number == 0) for number, character in enumerate(words))
    return (escaped or "-") + ".mount"


def _escaped(character: str, *, first: bool) -> str:
    if character == "\0":
        return "-"
    if re.fullmatch(r"[A-Za-z0-9:_]", character) or (character == "." and not first):
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def below(path: str, directory: str) -> bool:
    """Tell whether a path is a directory or lies below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def hides(path: str) -> str:
    """Return why nothing can be put at a path: which directory of the system or of Slurm's image it would hide."""
    if path in _ROOTS:
        return "it would hide all that is there"
    if path.startswith(_FREE):
        return next((f"Slurm's image has its own {one}" for one in _IMAGE if below(path, one)), "")
    return next((f"{one} is the system's" for one in _SYSTEM if below(path, one)), "")


def innermost(mounts: Iterable[Mapping[str, Any]], path: str) -> Mapping[str, Any] | None:
    """Return the file system that a path lies on: of those that fit the deepest, None where none does."""
    fitting = [mount for mount in mounts if below(path, str(mount["path"]))]
    return max(fitting, key=lambda mount: len(str(mount["path"])), default=None)


#: Below /run and /var a site may have what jobs are to see, but for what slurmd's container has there itself.
_DAEMONS = (
    *("/run/clusterctl", "/run/machine-etc", "/run/munge", "/run/slurm"),
    *("/var/lib/clusterctl", "/var/lib/extrausers", "/var/lib/sss", "/var/spool/slurmd", "/var/tmp"),  # noqa: S108
)


def hides_from_jobs(path: str) -> str:
    """Return why a machine's directory cannot be shown to jobs at its path: what of Slurm's image it would hide."""
    if path == "/opt":
        return ""
    if path.startswith(("/run/", "/var/")):
        found = next((one for one in _DAEMONS if below(path, one) or below(one, path)), "")
        return f"slurmd's container has its own {found}" if found else ""
    return hides(path)


def units(mounts: Iterable[Mapping[str, Any]], machine: str) -> list[dict[str, Any]]:
    """Return what a machine mounts by itself, of its mounts as :meth:`Mount.as_dict` gives them.

    Each has ``path``, ``unit``, ``what``, ``fstype`` and ``options``. The machine that exports a directory does not go
    through NFS for it: the directory itself is bound to the place that it has on the others.
    """
    found = []
    for mount in mounts:
        unit = {"path": mount["path"], "unit": unit_name(str(mount["path"]))}
        options = [*mount["options"], *(["ro"] if mount["read_only"] and "ro" not in mount["options"] else [])]
        if mount["served_by"] == machine:
            if mount["exported"] != mount["path"]:
                bound = {"what": mount["exported"], "fstype": "none", "options": ["bind"]}
                found.append({**unit, **bound, "nfs": False})
        elif mount["fstype"] in NETWORK:
            what = {"what": mount["source"], "fstype": mount["fstype"], "options": options or ["defaults"]}
            found.append({**unit, **what, "nfs": mount["fstype"] != "lustre"})
    return found


def exports(
    mounts: Iterable[Mapping[str, Any]], machine: str, addresses: Mapping[str, str]
) -> list[dict[str, str | list[str]]]:
    """Return the directories that a machine exports, each with the ``clients`` that may mount it and ``access``.

    ``addresses`` are the machines' by their names. A directory that anybody may write to is exported for writing.
    """
    found: dict[str, dict[str, Any]] = {}
    for mount in mounts:
        if mount["served_by"] != machine:
            continue
        one = found.setdefault(str(mount["exported"]), {"path": mount["exported"], "clients": [], "access": "ro"})
        one["clients"] = sorted(
            {*one["clients"], *(addresses.get(host, host) for host in mount["hosts"] if host != machine)}
        )
        one["access"] = one["access"] if mount["read_only"] else "rw"
    return list(found.values())


def same_source(fstype: str, declared: str, told: str) -> bool:
    """Tell whether the kernel's word for what is mounted is what was declared.

    Lustre's servers are told as addresses with their network, whatever names they were given (``convert_hostnames`` in
    mount_lustre.c): only addresses are compared, else the file system's name alone.
    """
    if fstype != "lustre":
        return declared.rstrip("/") == told.rstrip("/")
    (servers, _, name), (found, _, its) = declared.rpartition(":/"), told.rpartition(":/")
    wanted, there = _nids(servers), _nids(found)
    return name.strip("/") == its.strip("/") and (not wanted or not there or wanted == there)


def _nids(servers: str) -> list[str]:
    """Return the addresses of Lustre's servers in the kernel's form, tcp where no network is named; none of names."""
    split = (one.partition("@") for one in re.split(r"[,:]", servers))
    found = [(address, re.sub(r"(?<=[a-z])0$", "", network) or "tcp") for address, _, network in split]
    if all(re.fullmatch(r"[0-9.]+", address) for address, _ in found):
        return [f"{address}@{network}" for address, network in found]
    return []


def mounted_on(mounts: Iterable[Mapping[str, Any]], machine: str) -> list[str]:
    """Return where on a machine a file system of another machine or of the site's has to be mounted."""
    return [
        str(mount["path"])
        for mount in mounts
        if mount["fstype"] != LOCAL and (mount["served_by"] != machine or mount["exported"] != mount["path"])
    ]


def seen_by_jobs(
    mounts: Iterable[Mapping[str, Any]], writable: Iterable[str], read_only: Iterable[str], toolkits: Mapping[str, str]
) -> list[str]:
    """Return the machine's directories that jobs see, as ``source:target:options``; homes are among them.

    ``toolkits`` are what jobs cannot write, by the path at which they see it. What is mounted there later is seen as
    well: it comes from the machine (rslave).
    """
    found = {"/home": "rslave", **dict.fromkeys([*toolkits, *read_only], "ro,rslave")}
    found |= dict.fromkeys(writable, "rslave")
    found |= {str(mount["path"]): "ro,rslave" if mount["read_only"] else "rslave" for mount in mounts}
    return [f"{toolkits.get(path, path)}:{path}:{options}" for path, options in sorted(found.items())]


def shared_by(mounts: Iterable[Mapping[str, Any]], path: str, machines: Collection[str]) -> bool:
    """Tell whether a path lies on the same file system, which can be written, on all of these machines."""
    found = innermost((mount for mount in mounts if set(mount["hosts"]) & set(machines)), path)
    return (
        found is not None
        and found["fstype"] != LOCAL
        and not found["read_only"]
        and set(machines) <= set(found["hosts"])
    )


def homes_on(people: Users, mounts: Iterable[Mapping[str, Any]], machine: str, controller: str) -> tuple[str, ...]:
    """Return the names of the users whose homes are made on a machine.

    A home that is not shared is made on each. One on a directory that a machine of the cluster exports is made there:
    root is nobody on a client of NFS. One on a file system that the site brings is made on the controller. ``mounts``
    are as :meth:`provision.model.mounts.Mount.as_dict` gives them.
    """
    shared = list(mounts)
    return tuple(user.name for user in people.present if _maker(user.home, shared, machine, controller) == machine)


def _maker(home: str, mounts: list[Mapping[str, Any]], machine: str, controller: str) -> str:
    mount = innermost(mounts, home)
    if mount is None or mount["fstype"] == LOCAL:
        return machine
    if mount["served_by"] or controller in mount["hosts"]:
        return str(mount["served_by"] or controller)
    return str(mount["hosts"][0]) if mount["hosts"] else ""
