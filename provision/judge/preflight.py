"""Whether a machine can be provisioned. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provision.judge.clock import clock
from provision.judge.firewall import firewall
from provision.model.addresses import is_loopback, short
from provision.model.checks import Check, Subject, Verdict
from provision.model.engine import DATA_ROOT, was_configured
from provision.model.facts import Disk, MachineFacts
from provision.model.systems import SYSTEMS, known
from provision.model.versions import version

SUBJECT = Subject(
    "preflight",
    names=(
        "python", "system", "systemd", "root", "disk_space", "package_lock", "packages", "clock", "hostname",
        "own_name", "foreign_slurm", "same_cluster", "cgroup", "kernel", "user_namespaces",
        "firewall", "proxy",
    ),
    fix="clusterctl preflight",
    # Jobs of all would be lost; and of one slurm.conf, which all share, none would be confined.
    whole=("same_cluster", "cgroup"),
)  # fmt: skip

#: HTTP's status of a proxy that wants to know who asks.
_ASKS_FOR_PASSWORD = 407

#: The first kernel that gives namespaces numbers that are not in their order.
_MIXED_UP = (6, 18)

_DGX = "NVIDIA's own driver, repositories and services are on it (/etc/dgx-release): the roles would conflict with them"

#: What ansible-core 2.19 supports on a managed machine.
OLDEST_PYTHON = (3, 8)


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge whether a machine can be provisioned: all checks of the subject.

    ``facts`` is what ``machine_facts`` reports of ``system``, with ``hardware`` on machines that run jobs. ``wants``:
    ``name`` (in the inventory), ``disk_space`` (list of path, megabytes, purpose), ``clock_warn_seconds``,
    ``clock_fail_seconds``, ``cgroup_v1_allowed`` (by the site, for all nodes), ``own_directories`` (jobs have a /tmp of
    their own where they are confined), ``cluster`` (its ``name``, its ``controller``, and of which cluster the state is
    ``saved`` there: empty for none, null where it is not known), ``firewall`` (as :func:`firewall` takes it), ``proxy``
    (its ``host`` and ``port``, and whether a ``password`` is declared; empty for none).
    """
    return [
        *_basics(facts),
        _disks(*_where_images_are(facts, wants["disk_space"])),
        *_packages(facts),
        clock(SUBJECT, facts, wants),
        *_names(facts, str(wants["name"])),
        _foreign_slurm(facts),
        _same_cluster(facts, wants["cluster"], str(wants["name"])),
        _cgroup(facts, bool(wants["cgroup_v1_allowed"])),
        _kernel(facts, bool(wants["own_directories"])),
        _user_namespaces(facts),
        firewall(SUBJECT, facts, wants["firewall"], mended_later=True),
        _proxy(facts, wants["proxy"]),
    ]


def _basics(facts: MachineFacts) -> list[Check]:
    python, system = facts["python"], facts["os"]
    entry, dgx = known(system["id"], system["version"]), system.get("dgx", False)
    return [
        SUBJECT.check(
            "python", version(python) >= OLDEST_PYTHON, python, "3.8 or newer", source="ansible-core 2.19",
            cause="Ansible's modules do not run on it",
            fix="install a newer python3, or set ansible_python_interpreter",
        ),
        SUBJECT.check(
            "system", entry is not None and not dgx, ("DGX OS on " if dgx else "") + (system["name"] or system["id"]),
            ", ".join(f"{one.id} {'/'.join(one.versions)}" for one in SYSTEMS), source="the roles' tables",
            cause=_DGX if dgx else "the roles have no package names for this system",
            fix="install one of the supported systems",
        ),
        SUBJECT.check(
            "systemd", bool(facts["systemd"]), "running" if facts["systemd"] else "not running", "running",
            cause="systemd starts the services", fix="boot the machine with systemd as process 1",
        ),
        SUBJECT.check(
            "root", facts["uid"] == 0, f"uid {facts['uid']}", "uid 0", source="become",
            cause="becoming root did not work", fix="check ansible_become and the user's sudo rules",
        ),
    ]  # fmt: skip


def _where_images_are(
    facts: MachineFacts, wanted: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[str, Disk], Sequence[Mapping[str, Any]]]:
    """Count what the engine's images need where the engine keeps them, and as long as none of them can be ours."""
    disks, engine = dict(facts["disks"]), facts.get("engine")
    if not engine or (path := engine.get("images_at", DATA_ROOT)) not in disks:
        return disks, wanted
    disks[path] = {**disks[path], "used": disks[path]["used"] and was_configured(engine)}
    return disks, [{**one, "path": path} if one["path"] == DATA_ROOT else one for one in wanted]


def _disks(disks: Mapping[str, Disk], wanted: Sequence[Mapping[str, Any]]) -> Check:
    """Add up what is needed on each file system: two paths on one disk cannot use the same space.

    A path that already holds something was filled by an earlier run; it no longer needs its space.
    """
    by_device = dict[Any, list[Mapping[str, Any]]]()
    for entry in wanted:
        if entry["path"] not in disks:
            return SUBJECT.unknown("disk_space", f"the machine did not say what is free at {entry['path']}")
        by_device.setdefault(disks[entry["path"]]["device"], []).append(entry)
    if not by_device:
        return SUBJECT.skip("disk_space", "preflight_disk_space asks for none")
    systems = [_file_system(disks, entries) for entries in by_device.values()]
    # The full ones first: a report may cut a long text.
    systems.sort(key=lambda one: one[0])
    full = next((path for enough, path, *_ in systems if not enough), "")
    return SUBJECT.check(
        "disk_space",
        not full,
        "; ".join(observed for _, _, observed, _ in systems),
        "; ".join(expected for *_, expected in systems),
        source="preflight_disk_space",
        cause="the file system is too full or too small",
        fix=f"df -h {full}; make room (journalctl --vacuum-size=100M; apt-get clean; docker system df) or enlarge it",
    )


def _file_system(disks: Mapping[str, Disk], entries: Sequence[Mapping[str, Any]]) -> tuple[bool, str, str, str]:
    """Return whether there is enough space, the path that stands for the file system, and both values in words."""
    path = str(entries[0]["path"])
    needy = [entry for entry in entries if entry.get("always") or not disks[entry["path"]]["used"]]
    needed = sum(int(entry["megabytes"]) for entry in needy)
    free = int(disks[path]["free"])
    purposes = ", ".join(f"{entry['path']} {entry['megabytes']} MB ({entry['purpose']})" for entry in needy)
    return free >= needed, path, f"{path}: {free} MB free", f"{needed} MB: {purposes}" if needy else "nothing more"


def _packages(facts: MachineFacts) -> list[Check]:
    holder, waited = facts["lock"]["holder"], facts["lock"]["waited"]
    who = f"held by pid {holder['pid']}: {str(holder['command'])[:120]}" if holder else "free"
    broken = list(facts["packages_interrupted"])
    return [
        SUBJECT.check(
            "package_lock", not holder, f"{who} (waited {waited} s)" if waited else who, "free",
            source="preflight_lock_timeout", cause="another package manager is at work, often unattended-upgrades",
            fix="wait for it to end, or raise preflight_lock_timeout",
        ),
        SUBJECT.check(
            "packages", Verdict.WARN if broken else Verdict.PASS, ", ".join(broken) or "all complete", "all complete",
            cause="an earlier installation was interrupted",
            fix="nothing to do: the stage 'base' finishes it with dpkg --configure -a",
        ),
    ]  # fmt: skip


def _names(facts: MachineFacts, name: str) -> list[Check]:
    host = str(facts["hostname"])
    own = list(facts["addresses"].get(host) or [])
    good = bool(own) and not any(is_loopback(address) for address in own)
    return [
        hostname(SUBJECT, facts, name),
        SUBJECT.check(
            "own_name", Verdict.PASS if good else Verdict.WARN, ", ".join(own) or f"{host} has no address",
            "an address that other machines can use",
            cause="a machine that calls itself 127.x offers that address to the others",
            fix="nothing to do: the stage 'base' repairs the hosts file",
        ),
    ]  # fmt: skip


def hostname(subject: Subject, facts: MachineFacts, name: str) -> Check:
    """Judge whether a machine has the name that the inventory gives it."""
    host = str(facts["hostname"])
    return subject.check(
        "hostname",
        short(host) == short(name),
        host,
        short(name),
        source="the name in the inventory",
        cause="Slurm's daemons look for themselves under the machine's own name",
        fix=f"on the machine: hostnamectl set-hostname {short(name)}; or rename it in the inventory",
    )


def _foreign_slurm(facts: MachineFacts) -> Check:
    slurm = list(facts["slurm_daemons"])
    return SUBJECT.check(
        "foreign_slurm", not slurm, ", ".join(slurm) or "none", "none",
        cause="a Slurm that was not installed by these roles uses the same ports and directories",
        fix="move its jobs away, then on the machine: systemctl disable --now slurmd slurmctld slurmdbd",
    )  # fmt: skip


def _same_cluster(facts: MachineFacts, wants: Mapping[str, Any], machine: str) -> Check:
    """Refuse another name for a cluster that runs, and a controller that knows nothing of the jobs on a node.

    slurmctld ends with the state of another name, and without any it begins anew: what runs is nobody's any more.
    """
    own: Mapping[str, Any] = facts.get("slurm") or {}
    saved, there = str(own.get("saved", "")), str(own.get("controller", ""))
    name, controller = str(wants["name"]), str(wants["controller"])
    if not name:
        return SUBJECT.skip("same_cluster", "cluster_name is not declared")
    # On a machine that was a controller once nobody reads it any more.
    if saved and saved != name and machine == controller:
        return SUBJECT.check(
            "same_cluster", Verdict.FAIL, f"the state of cluster {saved}", name, source="cluster_name",
            cause="slurmctld does not start with the state of another cluster name",
            fix=f"write cluster_name={saved} again. Or start without any job, and with another name in the database: "
            "let all jobs end. Then on the machine: docker stop slurmctld, and rename /var/spool/slurmctld",
        )  # fmt: skip
    # A node that comes from another cluster leaves nothing behind that this one would lose.
    if there and there != controller and wants["saved"] == "" and own.get("cluster") in (None, "", name):
        return SUBJECT.check(
            "same_cluster", Verdict.FAIL, f"its slurmd is {there}'s", controller, source="group slurm_controller",
            cause=f"slurmctld on {controller} would start without the state of {there} and lose running jobs",
            fix=f"on {there}: docker stop slurmctld; then copy its /var/spool/slurmctld to {controller}. If that is "
            "lost, let the jobs here end, and remove /var/spool/slurmd/conf-cache on the node",
        )  # fmt: skip
    expected = controller if there and not saved else name
    return SUBJECT.check("same_cluster", True, saved or there or "none yet", expected, source="cluster_name")


def _kernel(facts: MachineFacts, own_directories: bool) -> Check:
    """Refuse a kernel under which Slurm starts only some of the jobs that have a /tmp of their own.

    A job's view of its directories is kept by a mount of its /proc/PID/ns/mnt, which the kernel refuses where the view
    is older than the one in which it is mounted. Since 6.18 it compares numbers that processors give out in portions,
    so that newer ones may be lower (fs/namespace.c, mnt_ns_loop): mount(2) ends with EINVAL, the job is "launch failed
    requeued held". Seen on 6.18 with Slurm 24.11.
    """
    if "hardware" not in facts:
        return SUBJECT.skip("kernel", "the machine runs no jobs")
    if not own_directories or facts["hardware"]["cgroup_version"] != 2:
        return SUBJECT.skip("kernel", "jobs share the node's /tmp")
    release = facts.get("kernel", "")
    if not release:
        return SUBJECT.unknown("kernel", "the machine did not say which kernel it runs")
    return SUBJECT.check(
        "kernel", version(release)[:2] < _MIXED_UP, release, "older than 6.18", source="JobContainerType",
        cause="it randomly refuses to start jobs that have their own /tmp; Slurm requeues and holds them",
        fix="boot an older kernel; or let this node's jobs share /tmp: node_private_tmp=false on its inventory line",
    )  # fmt: skip


def _user_namespaces(facts: MachineFacts) -> Check:
    """Refuse a kernel that lets no user have namespaces of their own, in which rootless containers of jobs are.

    Ubuntu's AppArmor lets only programs have them that one of its profiles names. podman is one of those; whether the
    profile is found for the podman of slurmd's container, which AppArmor does not confine, was never seen: a warning.
    """
    name = "user_namespaces"
    if "hardware" not in facts:
        return SUBJECT.skip(name, "the machine runs no jobs")
    found = facts.get("kernel_settings", {})
    wanted = {"user.max_user_namespaces": "63000", "kernel.unprivileged_userns_clone": "1"}
    bad = {setting: value for setting, value in wanted.items() if found.get(setting) == "0"}
    doubted = found.get(restriction := "kernel.apparmor_restrict_unprivileged_userns", "0") != "0"
    lines = "; ".join(
        f"sysctl -w {setting}={value}, and the line {setting} = {value} in /etc/sysctl.d/60-userns.conf"
        for setting, value in (bad or {restriction: "0"}).items()
    )
    return SUBJECT.check(
        name,
        Verdict.FAIL if bad else Verdict.WARN if doubted else Verdict.PASS,
        ", ".join(f"{key} = {value}" for key, value in found.items()) or "not limited",
        "users may make user namespaces",
        source="sysctl",
        cause="without them, rootless containers of jobs cannot start, including verify's training"
        if bad
        else "AppArmor allows them only to programs that a profile names; podman in jobs was never tried",
        fix=f"on the machine: {lines}" + ("" if bad else ", if verify's jobs in containers fail"),
    )


def _cgroup(facts: MachineFacts, v1_allowed: bool) -> Check:
    """Refuse a node with cgroup v1 here, before anything is changed: slurm.conf would be refused for it later."""
    if "hardware" not in facts:
        return SUBJECT.skip("cgroup", "the machine runs no jobs")
    version = facts["hardware"]["cgroup_version"]
    boot = "add systemd.unified_cgroup_hierarchy=1 to the kernel's command line and reboot"
    if version != 2 and not v1_allowed:
        return SUBJECT.check(
            "cgroup", Verdict.FAIL, f"v{version}", "v2", source="slurm_conf_cgroup_v1_allowed",
            cause="all nodes share one slurm.conf: with this node, no job on any node is confined to its own cores, "
            "memory and GPUs",
            fix=f"{boot}, and remove node_cgroup_version from its host_vars; or leave the node out. To "
            "run all nodes without confinement, set slurm_conf_cgroup_v1_allowed=true under [all:vars]",
        )  # fmt: skip
    return SUBJECT.check(
        "cgroup", Verdict.PASS if version == 2 else Verdict.WARN, f"v{version}", "v2",
        source="slurm_conf_cgroup_v1_allowed",
        cause="slurm_conf_cgroup_v1_allowed lets it in; Slurm can neither confine a job to its GPUs nor keep it when "
        "slurmd restarts",
        fix=boot,
    )  # fmt: skip


def _proxy(facts: MachineFacts, proxy: Mapping[str, Any]) -> Check:
    """Judge whether the declared proxy takes questions; what it says to this one is between it and the mirror."""
    if not proxy:
        return SUBJECT.check("proxy", True, "none is declared", source="cluster_proxy")
    if not (told := facts.get("proxy")):
        return SUBJECT.unknown("proxy", "the machine did not say whether the proxy answers")
    place, asks = f"{proxy['host']}:{proxy['port']}", told["status"] == _ASKS_FOR_PASSWORD
    if told["problem"]:
        said, fix = told["problem"], "correct cluster_proxy, or let this machine reach the proxy"
    elif asks:
        said = "it asks for a password"
        fix = "write it into cluster_proxy, in ansible-vault: {http: 'http://USER:PASSWORD@HOST:PORT'}"
    else:
        said, fix = "it answers", ""
    return SUBJECT.check(
        "proxy", not told["problem"] and (not asks or proxy["password"]), f"{place}: {said}", "a proxy that answers",
        source="cluster_proxy", cause="packages and images come through it", fix=fix,
    )  # fmt: skip
