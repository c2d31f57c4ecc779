"""What machines share: mounted as declared or not, silent, exported; and what a machine tells of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment
from machines import mounts as machine_mounts

from provision import content
from provision.judge import nfs_server, shared_storage
from provision.model import mounts
from provision.model.checks import Check, Verdict

HOME = mounts.Mount(
    path="/home", fstype="nfs4", source="files1:/srv/home", options=mounts.NFS_OPTIONS, groups=("slurm_compute",)
)
SITES = mounts.Mount(path="/data", fstype="present", groups=("slurm_compute",))
SCRATCH = mounts.Mount(path="/scratch", fstype="local", groups=("slurm_compute",))
GROUPS = {"slurm_compute": ("node1", "node2", "files1"), "nfs_server": ("files1",)}

#: As a virtual machine with Debian 12 wrote it; the last is a mount over another one.
MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
90 22 0:45 / /home rw,nosuid,nodev,relatime shared:50 - nfs4 files1:/srv/home rw,vers=4.2,hard,proto=tcp,nconnect=8
91 22 0:46 / /my\\040data rw shared:51 - 9p data rw
92 22 0:47 / /data rw shared:52 - tmpfs none rw
93 92 0:48 / /data ro shared:53 - lustre 10.0.0.5@o2ib:/data ro,flock
nonsense
"""

NFS = {
    "source": "files1:/srv/home",
    "fstype": "nfs4",
    "options": ["rw", "nosuid", "nodev", "vers=4.2", "hard", "proto=tcp", "nconnect=8"],
    "problem": "",
    "late": False,
}
LUSTRE = {"source": "10.0.0.5@o2ib:/data", "fstype": "lustre", "options": ["ro"], "problem": "", "late": False}
BOTH = {"/home": NFS, "/data": LUSTRE}


def judged(found: dict[str, Any], machine: str = "node1", *declared: mounts.Mount) -> dict[str, Check]:
    told = [one.as_dict(GROUPS) for one in declared or (HOME, SITES, SCRATCH)]
    checks = shared_storage.checks({"state": {"mounts": found}}, {"mounts": told, "machine": machine, "unmounted": []})  # type: ignore[typeddict-item]
    assert [check.id for check in checks] == [*shared_storage.BEFORE.ids, *shared_storage.SUBJECT.ids]
    return {check.id.partition(".")[2]: check for check in checks}


def test_what_is_mounted_as_declared_passes() -> None:
    found = judged(BOTH)

    assert found["mounts"].verdict is Verdict.PASS
    assert found["mounts"].observed == "2 mounted"
    assert found["options"].verdict is Verdict.PASS


def test_what_is_not_mounted_as_declared_is_named() -> None:
    def says(change: dict[str, Any]) -> tuple[str, str]:
        check = judged({**BOTH, "/home": {**NFS, **change}})["mounts"]
        assert check.verdict is Verdict.FAIL
        return check.observed, check.fix

    missing = judged({"/data": LUSTRE})["mounts"]
    assert (missing.verdict, missing.observed) == (Verdict.FAIL, "/home is not mounted")
    assert missing.fix == "clusterctl provision base"
    elsewhere = says({"source": "files2:/srv/home"})
    assert elsewhere[0] == "/home comes from files2:/srv/home, not from files1:/srv/home"
    assert "when no job uses it: umount /home" in elsewhere[1]
    assert says({"fstype": "nfs"})[0] == "/home is nfs, not nfs4"
    without = says({"options": ["rw", "soft", "vers=4.2", "nosuid", "nodev", "proto=tcp"]})
    assert without[0] == "/home is mounted without hard, nconnect=8"
    assert "umount /home" in without[1]
    assert says({"problem": "stat: cannot read file system information: Stale file handle"})[0].endswith(
        "Stale file handle"
    )


def test_what_a_mount_would_hide_is_refused_before_anything_is_changed() -> None:
    def says(hidden: dict[str, Any], machine: str = "node1") -> Check:
        told = [one.as_dict(GROUPS) for one in (HOME, SITES, SCRATCH)]
        facts: Any = {"state": {"mounts": {}, "hidden": hidden}}
        return shared_storage.checks(facts, {"mounts": told, "machine": machine, "unmounted": []})[0]

    found = says({"/home": ["admin", "ben"]})
    assert (found.verdict, found.before, found.observed) == (Verdict.FAIL, True, "/home holds admin; ben")
    assert says({"/home": []}).verdict is Verdict.PASS
    assert says({}).verdict is Verdict.PASS
    assert says({"/home": ["x"]}, "files1").verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("answer", "verdict", "said"),
    [
        ({"rc": 0, "text": "program\nmodule\n"}, Verdict.PASS, "mount.lustre, and the running kernel's module"),
        ({"rc": 0, "text": "program\n"}, Verdict.FAIL, "the running kernel has no module lustre"),
        ({"rc": 0, "text": ""}, Verdict.FAIL, "there is no program mount.lustre; the running kernel has no module"),
        ({"rc": None, "text": "did not answer in 10 s"}, Verdict.UNKNOWN, "did not answer in 10 s"),
        (None, Verdict.UNKNOWN, "the machine was not asked"),
    ],
)
def test_a_machine_without_lustres_client_is_refused_before_anything_is_changed(
    answer: Any, verdict: Verdict, said: str
) -> None:
    scratch = mounts.Mount("/lustre", "lustre", "10.0.0.5@o2ib:/fs", ("flock",), ("slurm_compute",))
    facts: Any = {"state": {"mounts": {}}, "commands": {"lustre": answer} if answer else {}}
    wants = {"mounts": [scratch.as_dict(GROUPS)], "machine": "node1", "unmounted": []}

    (check,) = [one for one in shared_storage.checks(facts, wants) if one.id == "shared_storage.client"]

    assert (check.verdict, check.before) == (verdict, True)
    assert said in check.observed
    assert verdict is not Verdict.FAIL or ("modprobe lustre" in check.fix and "fstype: present" in check.fix)


def test_a_machine_tells_what_is_in_a_directory_only_where_nothing_is_mounted(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTINFO)
    for path in ("home/ada", "srv/x", "data2/sets/one"):
        (tmp_path / path).mkdir(parents=True)

    found = machine_mounts.hidden(str(tmp_path), ["/home", "/srv", "/data2", "/data2/sets", "/absent"])

    assert found == {"/srv": ["x"], "/data2": ["sets"]}


def test_what_the_site_mounts_is_the_sites_to_mount() -> None:
    check = judged({"/home": NFS})["mounts"]

    assert (check.verdict, check.observed) == (Verdict.FAIL, "/data is not mounted")
    assert check.cause == "the site mounts /data, and has not"
    assert check.fix == "mount /data as the site does it, or correct cluster_mounts"


def test_a_server_that_is_silent_is_unknown_and_nothing_is_done_about_it() -> None:
    check = judged({**BOTH, "/home": {**NFS, "problem": "did not answer in 5 s", "late": True}})["mounts"]

    assert (check.verdict, check.observed) == (Verdict.UNKNOWN, "/home did not answer in 5 s")


def test_a_machine_without_shared_file_systems_owes_nothing() -> None:
    found = judged({}, "node1", SCRATCH)

    assert {check.verdict for check in found.values()} == {Verdict.SKIP}


def test_options_that_lose_data_or_time_are_worth_a_warning() -> None:
    soft = mounts.Mount("/home", "nfs4", "files1:/srv/home", ("soft", "noac"), ("slurm_compute",))

    check = judged(BOTH, "node1", soft)["options"]

    assert check.verdict is Verdict.WARN
    assert "/home has soft: a write that the server does not answer in time is lost" in check.observed
    assert "/home has noac" in check.observed


def test_a_server_binds_its_own_directory_and_needs_nothing_where_that_has_its_place_already() -> None:
    bound = {**NFS, "source": "/dev/vda", "fstype": "ext4", "options": ["rw"]}
    in_place = mounts.Mount("/home", "nfs4", "files1:/home", mounts.NFS_OPTIONS, ("slurm_compute",))

    assert judged({"/home": bound}, "files1", HOME)["mounts"].verdict is Verdict.PASS
    assert judged({}, "files1", HOME)["mounts"].observed == "/home is not mounted"
    assert judged({}, "files1", in_place)["mounts"].verdict is Verdict.PASS
    (unit,) = mounts.units([HOME.as_dict(GROUPS)], "files1")
    assert (unit["what"], unit["fstype"], unit["options"], unit["nfs"]) == ("/srv/home", "none", ["bind"], False)


def test_what_nobody_may_write_is_mounted_so() -> None:
    declared = mounts.Mount("/data", "nfs4", "10.0.9.1:/srv/data", ("hard",), ("slurm_compute",), read_only=True)
    (unit,) = mounts.units([declared.as_dict(GROUPS)], "node1")

    assert unit["options"] == ["hard", "ro"]
    writable = {**NFS, "source": "10.0.9.1:/srv/data", "options": ["rw", "hard"]}
    assert judged({"/data": writable}, "node1", declared)["mounts"].observed == "/data is mounted without ro"


def test_a_machine_tells_what_is_on_top_at_a_path_and_whether_it_answers(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTINFO)
    asked: list[list[str]] = []

    def run(argv: list[str], seconds: float) -> tuple[int | None, str]:
        asked.append([*argv[-1:], str(seconds)])
        return {"/home": (None, "did not answer in 10 s"), "/my data": (1, "stat: Stale file handle\n")}.get(
            argv[-1], (0, "x")
        )

    found = machine_mounts.collect(str(tmp_path), ["/home", "/my data", "/data", "/other"], 2, run)

    assert sorted(found) == ["/data", "/home", "/my data"]
    assert (found["/home"]["late"], found["/home"]["problem"]) == (True, "did not answer in 10 s")
    assert {"hard", "nosuid", "vers=4.2"} <= set(found["/home"]["options"])
    assert (found["/my data"]["late"], found["/my data"]["problem"]) == (False, "stat: Stale file handle")
    assert found["/data"] == {
        "source": "10.0.0.5@o2ib:/data", "fstype": "lustre", "options": ["flock", "ro"], "problem": "", "late": False,
    }  # fmt: skip
    assert ["/home", "10"] in asked


def test_a_shared_file_system_that_is_nearly_full_warns() -> None:
    told = [HOME.as_dict(GROUPS), SITES.as_dict(GROUPS)]
    text = "Filesystem 1048576-blocks Used Available Capacity Mounted on\nfiles1:/srv/home 1000 930 70000 93% /home\n"
    facts: Any = {"state": {"mounts": BOTH}, "commands": {"shared_space": {"rc": 1, "text": text}}}

    wants = {"mounts": told, "machine": "node1", "unmounted": []}
    check = next(one for one in shared_storage.checks(facts, wants) if one.id == "shared_storage.space")

    assert (check.verdict, check.observed) == (Verdict.WARN, "/home is 93 % full, 68 GiB free")
    assert "du -xsh /home/*" in check.fix
    assert judged(BOTH)["space"].unproven


def left(*unmounted: str, used: str = "") -> tuple[Check, Check]:
    """Return the checks of what an earlier inventory has left, where that had mounted /home, as now, /old and /gone."""
    own = [
        {
            "path": path,
            "unit": f"{path[1:]}.mount",
            "mounted": True,
            "users": [used] if used and path in unmounted else [],
        }
        for path in ("/home", "/old", "/gone")
    ]
    wants = {"mounts": [HOME.as_dict(GROUPS)], "machine": "node1", "unmounted": list(unmounted)}
    found = shared_storage.checks({"state": {"mounts": {"/home": NFS}, "own_mounts": own}}, wants)  # type: ignore[typeddict-item]
    return found[1], found[-1]


def test_what_an_earlier_inventory_has_mounted_is_named_and_goes_only_when_that_is_asked() -> None:
    named, asked = left()
    assert (named.verdict, named.before, asked.verdict) == (Verdict.WARN, True, Verdict.SKIP)
    assert named.observed == "/old is no longer in cluster_mounts; /gone is no longer in cluster_mounts"
    assert "{path: /old, state: absent}" in named.fix
    named, asked = left("/gone", "/never")
    assert (named.observed, asked.observed) == ("/old is no longer in cluster_mounts", "/gone is still there")
    assert asked.verdict is Verdict.FAIL
    named, asked = left("/gone", "/old")
    assert (named.verdict, asked.verdict) == (Verdict.PASS, Verdict.FAIL)


def test_what_somebody_uses_is_never_unmounted() -> None:
    _, check = left("/gone", "/old", used="python3 of uid 2001 (process 7)")

    assert (check.verdict, "when nobody uses it" in check.fix) == (Verdict.FAIL, True)
    assert check.observed.startswith("/old is in use: python3 of uid 2001 (process 7)")
    own = [{"path": "/gone", "unit": "gone.mount", "mounted": True, "users": []}]
    assert shared_storage.removable(own, ["/gone"]) == ["gone.mount"]
    assert shared_storage.removable([{**own[0], "users": ["x"]}], ["/gone"]) == []
    assert shared_storage.removable(own, []) == []


def test_a_machine_tells_of_its_own_units_and_who_uses_what_is_to_go(tmp_path: Path) -> None:
    units, process = tmp_path / "etc/systemd/system", tmp_path / "proc/7"
    (process / "fd").mkdir(parents=True)
    units.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTINFO)
    (process / "cwd").symlink_to("/dataset")
    (process / "fd/3").symlink_to("/data/set/1")
    (process / "maps").write_text("")
    (process / "comm").write_text("python3\n")
    header = "# From cluster_mounts of the inventory.\n[Mount]\n"
    (units / "data.mount").write_text(f"{header}Where=/data\n")
    (units / "old.mount").write_text(f"{header}Where=/old\n")
    (units / "site.mount").write_text("[Mount]\nWhere=/home\n")

    data, old = machine_mounts.own(str(tmp_path), ["/data"])

    assert (data["path"], data["unit"], data["mounted"]) == ("/data", "data.mount", True)
    assert [one.partition(" of ")[0] for one in data["users"]] == ["python3"]
    assert old == {"path": "/old", "unit": "old.mount", "mounted": False, "users": []}
    assert machine_mounts.own(str(tmp_path))[0]["users"] == []
    (process / "fd/3").unlink()
    assert machine_mounts.users(str(tmp_path), "/data") == []
    (process / "maps").write_text("7f00-7f01 r--p 00000000 00:2f 5      /data/lib.so\n")
    assert len(machine_mounts.users(str(tmp_path), "/data")) == 1


def test_the_header_by_which_units_are_known_is_the_one_that_they_have() -> None:
    text = (content.ROOT / "roles/shared_storage/templates/mount.j2").read_text(encoding="utf-8")

    assert text.startswith(machine_mounts.HEADER)


EXPORTS = [{"path": "/srv/home", "clients": ["10.0.0.1", "10.0.0.2"], "access": "rw"}]
ETAB = """\
/srv/home\t10.0.0.1(rw,sync,wdelay,hide,nocrossmnt,secure,root_squash,no_all_squash)
/srv/home\t10.0.0.2(ro,sync,wdelay)
/other\t10.0.0.2(rw)
"""


def exported(etab: str, kind: str = "directory", rc: int | None = 0, exports: Any = EXPORTS) -> Check:
    facts = {"state": {"paths": {"/srv/home": {"kind": kind}}}, "commands": {"exports": {"rc": rc, "text": etab}}}
    (check,) = nfs_server.checks(facts, {"exports": exports})  # type: ignore[arg-type]
    return check


def test_a_directory_that_a_client_cannot_mount_is_named_with_the_client() -> None:
    assert exported(ETAB.replace("(ro", "(rw")).verdict is Verdict.PASS
    assert exported(ETAB).observed == "/srv/home is not exported rw to 10.0.0.2"
    assert exported("").observed == "/srv/home is not exported to 10.0.0.1; 10.0.0.2"
    assert exported(ETAB, kind="absent").observed == "/srv/home is absent"
    assert exported("cat: /var/lib/nfs/etab: No such file", rc=1).verdict is Verdict.FAIL
    assert exported("did not answer in 5 s", rc=None).verdict is Verdict.UNKNOWN
    assert exported("", exports=[]).verdict is Verdict.SKIP


def test_a_directory_is_exported_to_the_machines_that_mount_it_and_to_nobody_else() -> None:
    declared = [
        HOME.as_dict(GROUPS),
        mounts.Mount("/sets", "nfs4", "files1:/srv/sets", (), ("slurm_compute",), read_only=True).as_dict(GROUPS),
        mounts.Mount("/x", "nfs4", "10.9.9.9:/x", (), ("slurm_compute",)).as_dict(GROUPS),
    ]

    found = mounts.exports(declared, "files1", {"node1": "10.0.0.1", "node2": "10.0.0.2", "files1": "10.0.0.3"})

    assert found == [
        {"path": "/srv/home", "clients": ["10.0.0.1", "10.0.0.2"], "access": "rw"},
        {"path": "/srv/sets", "clients": ["10.0.0.1", "10.0.0.2"], "access": "ro"},
    ]
    assert mounts.exports(declared, "node1", {}) == []


@pytest.mark.parametrize("text", ["", "garbage", "1 2 3 - x", "\x00", " - \n"])
def test_a_list_of_mounts_that_is_none_names_none(text: str) -> None:
    assert machine_mounts.mounted(text) == {}


def rendered(template: str, **values: Any) -> str:
    text = (content.ROOT / "roles" / template).read_text()
    return str(Environment(trim_blocks=True, keep_trailing_newline=True).from_string(text).render(**values))  # noqa: S701 - files


def test_the_files_say_what_is_exported_and_mounted() -> None:
    (unit,) = mounts.units([HOME.as_dict(GROUPS)], "node1")
    options = {"nfs_server_export_options": ["sync", "root_squash"]}

    exported = rendered("nfs_server/templates/exports.j2", __nfs_server_exports=EXPORTS, **options)
    mounted = rendered("shared_storage/templates/mount.j2", item={**unit, "where": "/home"}).splitlines()

    assert exported.splitlines()[1:] == ["/srv/home 10.0.0.1(rw,sync,root_squash) 10.0.0.2(rw,sync,root_squash)"]
    assert {"What=files1:/srv/home", "Where=/home", "Type=nfs4", "Before=docker.service"} <= set(mounted)
    assert f"Options={','.join(mounts.NFS_OPTIONS)}" in mounted
    assert "After=network-online.target" in mounted
