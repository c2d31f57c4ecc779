"""Whether what machines share is mounted as declared, and answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from provision.judge.space import space
from provision.model.checks import Check, Subject, Verdict
from provision.model.facts import MachineFacts
from provision.model.mounts import DOUBTFUL, LOCAL, PRESENT, same_source, units
from provision.model.state_facts import CommandAnswer
from provision.model.text import brief

SUBJECT = Subject("shared_storage", ("mounts", "options", "space", "left"), fix="clusterctl provision base")

#: Judged before anything is changed.
BEFORE = Subject("shared_storage", ("hides", "undeclared", "client"), fix="clusterctl preflight", before=True)

#: Options that the kernel shows as they were given. Others it writes in another way, or agrees upon with the server.
_SHOWN = ("ro", "rw", "hard", "soft", "noac", "nocto", "nosuid", "nodev", "noexec", "vers", "proto", "nconnect")


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Return all checks of the subject: ``wants`` has the ``mounts`` of this ``machine``, as the inventory has them.

    ``unmounted`` are the paths that it is to have no longer.
    """
    state: Mapping[str, Any] = facts.get("state") or {}
    mounts = [mount for mount in wants["mounts"] if mount["fstype"] != LOCAL]
    own = state.get("own_mounts") or []
    declared = {str(unit["path"]) for unit in units(mounts, str(wants["machine"]))}
    others = [one for one in own if one["path"] not in declared]
    gone = [one for one in others if one["path"] in wants["unmounted"]]
    return [
        _hides(mounts, str(wants["machine"]), state.get("hidden") or {}),
        _undeclared(own, [one for one in others if one not in gone]),
        _client(mounts, facts.get("commands", {}).get("lustre")),
        _mounted(mounts, str(wants["machine"]), state.get("mounts") or {}),
        _options(mounts),
        _space([str(mount["path"]) for mount in mounts], facts.get("commands", {}).get("shared_space")),
        _left(gone) if wants["unmounted"] else SUBJECT.skip("left", "nothing is to be unmounted"),
    ]


def _space(paths: Sequence[str], answer: CommandAnswer | None) -> Check:
    if not paths:
        return SUBJECT.skip("space", "the inventory declares no shared file system for this machine")
    fix = "du -xsh {path}/*; let users remove files, or enlarge the file system on its server"
    return space(SUBJECT, answer, paths, fix=fix)


def _undeclared(own: Sequence[Mapping[str, Any]], staying: Sequence[Mapping[str, Any]]) -> Check:
    """Tell of what an earlier inventory has mounted and nobody has asked to be unmounted."""
    if not own:
        return BEFORE.skip("undeclared", "nothing has been mounted here by clusterctl")
    path = staying[0]["path"] if staying else ""
    return BEFORE.check(
        "undeclared",
        Verdict.WARN if staying else Verdict.PASS,
        brief([f"{one['path']} is no longer in cluster_mounts" for one in staying])
        or "nothing of an earlier inventory",
        "nothing mounted by clusterctl that is not declared",
        source="units of systemd that clusterctl has written",
        cause="the inventory had it before",
        fix=f"declare it again; or unmount it, in cluster_mounts: {{path: {path}, state: absent}}",
    )


def _client(mounts: Sequence[Mapping[str, Any]], answer: CommandAnswer | None) -> Check:
    """Refuse to mount Lustre where its client is not: it belongs to the kernel, and comes with no system."""
    paths = [str(mount["path"]) for mount in mounts if mount["fstype"] == "lustre"]
    if not paths:
        return BEFORE.skip("client", "no file system here needs a client of the site's")
    if answer is None or answer["rc"] is None:
        return BEFORE.unknown("client", answer["text"] if answer else "the machine was not asked")
    there = answer["text"].split()
    wrong = [] if "program" in there else ["there is no program mount.lustre"]
    wrong += [] if "module" in there else ["the running kernel has no module lustre"]
    return BEFORE.check(
        "client",
        not wrong,
        "; ".join(wrong) or "mount.lustre, and the running kernel's module",
        f"Lustre's client, which mounts {brief(paths)}",
        source="cluster_mounts; mount.lustre(8)",
        cause="Lustre's client comes from the site, built for one kernel: it is not installed, or for another one",
        fix="install it for the running kernel, of the servers' release (Debian, Ubuntu: lustre-client-utils and "
        "lustre-client-modules-dkms); modprobe lustre has to end with 0. Or mount it by the site's own means, and "
        "declare fstype: present",
    )


def _left(gone: Sequence[Mapping[str, Any]]) -> Check:
    """Judge what is to be unmounted: it goes when nobody uses it."""
    used = [f"{one['path']} is in use: {brief(one['users'])}" for one in gone if one["users"]]
    going = [f"{one['path']} is still there" for one in gone if not one["users"]]
    return SUBJECT.check(
        "left",
        not gone,
        brief([*used, *going]) or "nothing that is to be unmounted",
        "unmounted, as cluster_mounts says (state: absent)",
        source="units of systemd that clusterctl has written",
        cause="processes still use it" if used else "the inventory had it before",
        fix=f"when nobody uses it any more (squeue): {SUBJECT.fix}" if used else None,
    )


def removable(own: Sequence[Mapping[str, Any]], unmounted: Sequence[str]) -> list[str]:
    """Return the units of what is to be unmounted and nobody uses."""
    return [str(one["unit"]) for one in own if one["path"] in unmounted and not one["users"]]


def lacking(declared: Iterable[str], found: Sequence[str]) -> list[str]:
    """Return the declared options with which a file system is not mounted, of those that the kernel shows."""
    return [one for one in declared if one.partition("=")[0] in _SHOWN and one not in found]


def _hides(mounts: Sequence[Mapping[str, Any]], machine: str, hidden: Mapping[str, Sequence[str]]) -> Check:
    """Refuse to mount over what is there: somebody who logs in with a key in a home there could not any more."""
    own = [str(unit["path"]) for unit in units(mounts, machine)]
    if not own:
        return BEFORE.skip("hides", "the machine mounts no shared file system by itself")
    wrong = [f"{path} holds {brief(hidden[path])}" for path in own if hidden.get(path)]
    return BEFORE.check(
        "hides",
        not wrong,
        "; ".join(wrong) or "no files are below the mount points",
        "no files that a mount would hide",
        source="cluster_mounts",
        cause="files on the machine's own disk, where another file system is to be mounted",
        fix="on the machine: move them away, a user's home with usermod --move-home --home; or declare another path",
    )


def _mounted(mounts: Sequence[Mapping[str, Any]], machine: str, found: Mapping[str, Mapping[str, Any]]) -> Check:
    if not mounts:
        return SUBJECT.skip("mounts", "the inventory declares no shared file system for this machine")
    own = {unit["path"]: unit for unit in units(mounts, machine)}
    wrong: list[str] = []
    silent: list[str] = []
    absent: list[str] = []
    for mount in mounts:
        path, there = str(mount["path"]), found.get(mount["path"])
        exported_here = mount["served_by"] == machine and path not in own
        if there is None:
            if not exported_here:
                absent.append(path)
                wrong.append(f"{path} is not mounted")
        elif there["late"]:
            silent.append(f"{path} {there['problem']}")
        elif problem := there["problem"] or _differs(mount, own.get(path), there):
            wrong.append(f"{path} {problem}")
    if silent and not wrong:
        return SUBJECT.unknown(
            "mounts",
            brief(silent),
            cause="the server of the file system is away, or the network to it is",
            fix="ping the server; on it: systemctl status nfs-server",
        )
    by_site = [path for path in absent if path not in own]
    return SUBJECT.check(
        "mounts",
        not wrong,
        brief([*wrong, *silent]) or f"{len(mounts)} mounted",
        "mounted from where it is declared, and answering",
        source="cluster_mounts; /proc/self/mountinfo",
        cause=f"the site mounts {', '.join(by_site)}, and has not" if by_site else _cause(wrong),
        fix=f"mount {by_site[0]} as the site does it, or correct cluster_mounts" if by_site else _fix(wrong),
    )


def _differs(mount: Mapping[str, Any], unit: Mapping[str, Any] | None, there: Mapping[str, Any]) -> str:
    """Return how a mount differs from what is declared; where it is bound on its own server, it is another kind."""
    if unit and unit["fstype"] == "none":
        return ""
    if mount["source"] and not same_source(there["fstype"], str(mount["source"]), there["source"]):
        return f"comes from {there['source']}, not from {mount['source']}"
    if mount["fstype"] != PRESENT and there["fstype"] != mount["fstype"]:
        return f"is {there['fstype']}, not {mount['fstype']}"
    missing = lacking(unit["options"] if unit else (), there["options"])
    return f"is mounted without {', '.join(missing)}" if missing else ""


def _cause(wrong: Sequence[str]) -> str:
    if any(" comes from " in one or " is mounted without " in one for one in wrong):
        return "it was mounted before it was declared so, and only an unmount can change that"
    return "unmounted by hand, or never mounted"


def _fix(wrong: Sequence[str]) -> str | None:
    for one in wrong:
        if " comes from " in one or " is mounted without " in one:
            path = one.split(" ", 1)[0]
            return f"when no job uses it: umount {path}; clusterctl provision base"
    return None


def _options(mounts: Sequence[Mapping[str, Any]]) -> Check:
    """Warn of options that look like safety and are none."""
    found = [
        f"{mount['path']} has {option}: {DOUBTFUL[option]}"
        for mount in mounts
        for option in mount["options"]
        if option in DOUBTFUL
    ]
    if not any(mount["options"] for mount in mounts):
        return SUBJECT.skip("options", "the inventory sets no mount options")
    return SUBJECT.check(
        "options",
        Verdict.WARN if found else Verdict.PASS,
        brief(found) or "none that loses data or time",
        "options that lose no data and no time",
        source="cluster_mounts; nfs(5)",
        cause="with any options, others see a file once it is closed: write checkpoints to another name, then rename",
        fix="remove the option from cluster_mounts",
    )
