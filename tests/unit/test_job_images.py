"""Images of jobs on machines: what they are made of, whether they are there, and who uses those that are old."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
from machines import plugin

from provision.judge import job_images
from provision.model.checks import Check, Verdict
from provision.model.facts import facts_from
from provision.model.job_images import JobImage

for part in ("site_network", "debian_mirror", "wheels", "image_registry", "image_recipe"):
    plugin(f"plugins/module_utils/{part}.py", f"ansible.module_utils.{part}")
image_store = plugin("plugins/module_utils/image_store.py", "ansible.module_utils.image_store")
sources = plugin("plugins/module_utils/job_image_sources.py", "ansible.module_utils.job_image_sources")
store_users = plugin("plugins/module_utils/store_users.py", "ansible.module_utils.store_users")
plugin("plugins/module_utils/image_space.py", "ansible.module_utils.image_space")
plugin("plugins/module_utils/machine_commands.py", "ansible.module_utils.machine_commands")
plugin("plugins/module_utils/telling.py", "ansible.module_utils.telling")
forgotten = plugin("roles/job_images/library/job_images_forgotten.py")
removed = plugin("roles/job_images/library/job_images_removed.py")

A, B = "a" * 64, "b" * 64
IMAGE = {
    **JobImage(name="one:1.0", kind="archive", source="/data/one.tar").as_dict(),
    "content": "", "text": "", "path": "", "directory": False,
}  # fmt: skip
KEY = IMAGE["key"]
REFERENCE = f"head:5000/clusterctl/jobs/lab/one@sha256:{A}"
OLD = f"head:5000/clusterctl/jobs/lab/one@sha256:{B}"


def wants(**more: Any) -> dict[str, Any]:
    told = {"images": [IMAGE], "builds": False, "compute": True, "own": True, "references": {KEY: REFERENCE}}
    return {**told, **more}


def judged(facts: dict[str, Any], **more: Any) -> dict[str, Check]:
    found = job_images.checks(facts_from(facts), wants(**more))
    assert [check.id for check in found] == [*job_images.BEFORE.ids, *job_images.SUBJECT.ids]
    return {check.id.partition(".")[2]: check for check in found}


def stored(*names: str, **more: Any) -> dict[str, Any]:
    return {"id": A, "names": list(names), "untag": [], "remove": False, "used": [], **more}


def on_node(*images: dict[str, Any]) -> dict[str, Any]:
    return {"job_images": {"stored": list(images)}}


def test_an_image_is_there_by_digest_and_under_its_name() -> None:
    assert judged(on_node(stored(REFERENCE, IMAGE["stored"])))["stored"].verdict is Verdict.PASS
    assert "one:1.0 is not there" in judged(on_node())["stored"].observed
    assert "one:1.0 is not there" in judged(on_node(stored(OLD, IMAGE["stored"])))["stored"].observed
    assert "without its name" in judged(on_node(stored(REFERENCE)))["stored"].observed
    assert "still to be made" in judged(on_node(), references={KEY: ""})["stored"].observed
    assert judged(on_node(), references={KEY: None})["stored"].verdict is Verdict.UNKNOWN
    assert judged(on_node(), images=[])["stored"].verdict is Verdict.SKIP


def test_what_is_old_is_to_go_and_what_a_job_uses_stays_without_being_a_failure() -> None:
    there = stored(REFERENCE, IMAGE["stored"])
    assert judged(on_node(there))["collected"].verdict is Verdict.PASS

    gone = judged(on_node(there, stored(OLD, remove=True)))["collected"]
    assert (gone.verdict, gone.observed) == (Verdict.FAIL, f"one ({B[:12]})")

    stays = judged(on_node(there, stored(OLD, used=["job 12"])))["collected"]
    assert (stays.verdict, stays.observed) == (Verdict.PASS, f"one ({B[:12]}) stays: job 12 uses it")

    named = judged(on_node(stored(REFERENCE, IMAGE["stored"], "localhost/x:1", untag=["localhost/x:1"])))["collected"]
    assert (named.verdict, named.observed) == (Verdict.FAIL, "x:1 is a former name")


def test_nothing_is_called_old_before_all_are_made() -> None:
    checks = judged(on_node(stored(OLD, remove=True)), references={KEY: ""})

    assert checks["collected"].verdict is Verdict.SKIP


def test_the_last_image_that_is_taken_out_is_collected_too() -> None:
    checks = judged(on_node(stored(OLD, remove=True)), images=[], references={})

    assert checks["collected"].verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"error": "No such file or directory"}, "/data/one.tar: No such file or directory"),
        ({"error": "Permission denied"}, "/data/one.tar: root may not read it"),
        ({"kind": "file", "size": 0, "head": "", "recipe": False}, "it is empty"),
        ({"kind": "file", "size": 9000, "head": b"hsqs".hex(), "recipe": False}, "squashfs"),
        ({"kind": "file", "size": 9000, "head": b"text".hex(), "recipe": False}, "no archive (tar)"),
        ({"kind": "directory", "size": 4096, "head": "", "recipe": True}, "it is a directory"),
        ({"kind": "file", "size": 9000, "head": b"\x1f\x8b".hex(), "recipe": False}, ""),
    ],
)
def test_what_is_no_image_is_refused_before_anything_is_changed(source: dict[str, Any], words: str) -> None:
    check = judged({"job_images": {"sources": {KEY: source}, "kept": []}}, builds=True)["sources"]

    assert check.before
    assert check.verdict is (Verdict.FAIL if words else Verdict.PASS)
    assert words in check.observed


def test_what_is_to_be_on_a_disk_that_is_not_mounted_yet_refuses_nothing() -> None:
    told = {"error": "No such file or directory", "unmounted": "/data"}
    check = judged({"job_images": {"sources": {KEY: told}, "kept": []}}, builds=True)["sources"]

    assert (check.verdict, check.unproven) == (Verdict.SKIP, True)
    assert check.observed.startswith("/data/one.tar is below /data, which is not mounted yet")


def test_what_is_absent_below_a_file_system_that_is_not_mounted_is_told_with_that(tmp_path: Path) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("36 35 98:0 / /there rw - nfs4 head:/x rw\n")
    images = [
        {**IMAGE, "key": path, "source": path} for path in ("/data/none/one.tar", "/there/one.tar", "/database/one.tar")
    ]

    look = sources.look(images, 10)
    told = sources.sources(look, images, ["/data/none", "/data", "/there"], str(tmp_path))
    assert [one.get("unmounted") for one in told.values()] == ["/data/none", None, None]
    assert all(one["error"] == "No such file or directory" for one in told.values())


@pytest.mark.parametrize("kind", ["archive", "containerfile"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "one.tar")
    image = JobImage(name="x", kind=kind, source=str(tmp_path / "one.tar"))  # type: ignore[arg-type]
    signal.alarm(60)
    try:
        asked = ask(tmp_path, image)["images"]
        assert sources.sources(sources.look(asked, 10)) == {
            "job.x:latest": {"error": "it is neither a file nor a directory"}
        }
    finally:
        signal.alarm(0)


def test_a_disk_that_does_not_answer_leaves_its_images_unknown_and_the_others_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, upon = tmp_path / "away.tar", tmp_path / "upon"
    upon.mkdir()
    (upon / "Containerfile").write_text("FROM away:1")
    (tmp_path / "here.tar").write_text("one")
    images = (
        JobImage(name="away:1", kind="archive", source=str(away)),
        JobImage(name="upon", kind="containerfile", source=str(upon)),
        JobImage(name="here", kind="archive", source=str(tmp_path / "here.tar")),
    )
    asked = ask(tmp_path, *images)
    looked = sources._looked
    monkeypatch.setattr(
        sources, "_looked", lambda image: time.sleep(3600) if image["source"] == str(away) else looked(image)
    )

    there = sources.look(asked["images"], 1)
    assert sources.states(asked, 1, there).keys() == {"job.here:latest"}
    assert sources.sources(there).keys() == {"job.upon:latest", "job.here:latest"}


def test_a_source_of_which_nothing_is_said_is_unknown() -> None:
    assert judged({"job_images": {"kept": []}}, builds=True)["sources"].verdict is Verdict.UNKNOWN


def test_what_is_to_be_made_is_said_with_what_it_is_made_of_and_what_that_means() -> None:
    told = {"images": {KEY: {"reference": "", "problem": "not built"}}, "job_images": {"sources": {}, "kept": []}}
    check = judged(told, builds=True)["built"]

    assert check.verdict is Verdict.FAIL
    assert check.observed == "one:1.0: not loaded yet from /data/one.tar"
    assert [one.sentence for one in check.consequences] == ["builds the image one:1.0 (it is read into the registry)"]
    assert judged({"job_images": {"kept": []}}, builds=True)["built"].verdict is Verdict.UNKNOWN
    silent = {"images": {KEY: {"reference": REFERENCE, "problem": "the registry does not answer"}}}
    assert judged(silent, builds=True)["built"].verdict is Verdict.SKIP


def test_the_registry_of_the_controller_keeps_what_is_declared_and_nothing_else() -> None:
    told = {"images": {KEY: {"reference": REFERENCE, "problem": ""}}}
    kept = [name.partition("clusterctl/")[2] for name in (REFERENCE, OLD)]

    check = judged({**told, "job_images": {"kept": kept}}, builds=True, compute=False)["collected"]
    assert (check.verdict, check.observed) == (Verdict.FAIL, f"jobs/lab/one ({B[:12]}) is in the registry")
    assert judged({**told, "job_images": {"kept": kept[:1]}}, builds=True, compute=False)["collected"].ok
    assert judged({**told, "job_images": {"kept": kept}}, builds=True, own=False, compute=False)["collected"].ok, (
        "a site's has its own rules"
    )


def ask(tmp_path: Path, *images: JobImage, text: str = "") -> dict[str, Any]:
    store = {"push": "head:5001/clusterctl", "pull": "head:5000/clusterctl", "cache": str(tmp_path), "revision": 1}
    told = [{**one.as_dict(), "content": "", "text": text} for one in images]
    return {"images": told, "store": store, "repository": "jobs/lab", "own": True}


def test_a_file_on_the_controller_counts_by_name_size_and_time_and_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_text("one")
    image = JobImage(name="x", kind="archive", source=str(tmp_path / "x.tar"))
    first = sources.recipes(ask(tmp_path, image))
    assert sources.recipes(ask(tmp_path, image)) == first

    (tmp_path / "x.tar").write_text("two")
    second = sources.recipes(ask(tmp_path, image))
    again = sources.recipes(ask(tmp_path, image.model_copy(update={"revision": 2})))
    other = sources.recipes(ask(tmp_path, image.model_copy(update={"name": "y"})))
    assert len({*first.values(), *second.values(), *again.values(), *other.values()}) == 4


def test_what_an_image_is_built_upon_is_a_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "base.tar").write_text("one")
    (tmp_path / "two").mkdir()
    base = JobImage(name="base:1", kind="archive", source=str(tmp_path / "base.tar"))
    upon = JobImage(name="two", kind="containerfile", source=str(tmp_path / "two"))
    texts = (
        "FROM base:1 AS x",
        "from --platform=linux/amd64 base:1",
        "FROM scratch\nCOPY --from=base:1 / /",
        "FROM other",
    )
    for text, counts in zip(texts, (True, True, True, False), strict=True):
        (tmp_path / "two" / "Containerfile").write_text(text)
        (tmp_path / "base.tar").write_text("one")
        first = sources.recipes(ask(tmp_path, base, upon))["job.two:latest"]
        (tmp_path / "base.tar").write_text("other")
        assert (sources.recipes(ask(tmp_path, base, upon))["job.two:latest"] != first) is counts, text


def test_an_image_is_known_by_the_digest_that_was_remembered_while_the_registry_has_it(tmp_path: Path) -> None:
    image = JobImage(name="x", kind="reference", source="harbor.site/x:1")
    asked = ask(tmp_path, image)
    record = sources.remembered(asked, asked["images"][0], sources.recipes(asked)["job.x:latest"]).record
    assert sources.states(asked)["job.x:latest"] == {"reference": "", "problem": "not built"}

    record.parent.mkdir()
    record.write_text(json.dumps({"digest": f"sha256:{A}"}))
    sources.image_registry.has, has = lambda *_: True, sources.image_registry.has
    try:
        told = sources.states(asked)["job.x:latest"]
    finally:
        sources.image_registry.has = has
    assert told == {"reference": f"head:5000/clusterctl/jobs/lab/x@sha256:{A}", "problem": ""}


def test_a_path_that_is_gone_is_said_and_the_others_are_known(tmp_path: Path) -> None:
    gone = JobImage(name="x", kind="archive", source="/nowhere.tar")
    there = JobImage(name="y", kind="reference", source="harbor.site/y:1")

    told = sources.states(ask(tmp_path, gone, there))

    assert told["job.x:latest"]["problem"] == "/nowhere.tar: No such file or directory"
    assert told["job.y:latest"]["problem"] == "not built"


def test_what_the_registry_keeps_is_read_from_its_directory(tmp_path: Path) -> None:
    place = tmp_path / "registry/docker/registry/v2/repositories/clusterctl/jobs/lab/team/one"
    link = place / "_manifests/revisions/sha256" / A / "link"
    link.parent.mkdir(parents=True)
    link.write_text(f"sha256:{A}")

    assert sources.kept(ask(tmp_path)) == [f"jobs/lab/team/one@sha256:{A}"]


class EndedError(Exception):
    """The module has said how it went."""


def test_layers_that_were_not_collected_are_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = ask(tmp_path)
    link = (
        tmp_path
        / f"registry/docker/registry/v2/repositories/clusterctl/jobs/lab/one/_manifests/revisions/sha256/{A}/link"
    )
    link.parent.mkdir(parents=True)
    link.touch()

    class Module:
        params: ClassVar[dict[str, Any]] = {"repository": "jobs/lab", "store": request["store"], "references": []}

        def __init__(self, **_: Any) -> None:
            pass

        def fail_json(self, **said: Any) -> None:
            raise EndedError("failed", said)

        def exit_json(self, **said: Any) -> None:
            raise EndedError("ended", said)

    collected = iter([1, 0])
    monkeypatch.setattr(forgotten, "AnsibleModule", Module)
    monkeypatch.setattr(forgotten, "old_builds", lambda *_: [])
    monkeypatch.setattr(forgotten, "delete", lambda *_: link.unlink())
    monkeypatch.setattr(forgotten, "run", lambda *_: (next(collected), "no space left"))

    with pytest.raises(EndedError, match="garbage-collect failed: no space left"):
        forgotten.main()
    assert sources.kept(request) == []
    assert sources.garbage(request["store"]).exists()
    check = judged({"job_images": {"kept": [], "garbage": True}}, builds=True, compute=False)["collected"]
    assert check.verdict is Verdict.FAIL
    with pytest.raises(EndedError, match="'changed': True"):
        forgotten.main()
    assert not sources.garbage(request["store"]).exists()
    with pytest.raises(EndedError, match="'changed': False"):
        forgotten.main()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two images upon one base layer, the second of them old."""
    base, new, old = "0" * 64, "1" * 64, "2" * 64
    lists = {
        "images": [
            {"id": A, "names": [REFERENCE, "localhost/one:1.0"], "layer": new},
            {"id": B, "names": [OLD, "localhost/gone:1"], "layer": old},
            {"id": "c" * 64, "names": ["head:5000/clusterctl/ddp@sha256:" + A], "layer": base},
        ],
        "layers": [{"id": base}, {"id": new, "parent": base}, {"id": old, "parent": base}],
    }
    for kind, entries in lists.items():
        (tmp_path / "store" / f"overlay-{kind}").mkdir(parents=True)
        (tmp_path / "store" / f"overlay-{kind}" / f"{kind}.json").write_text(json.dumps(entries))
    links = tmp_path / "store" / "overlay" / "l"
    links.mkdir(parents=True)
    for name, layer in (("B" * 26, base), ("N" * 26, new), ("O" * 26, old)):
        (links / name).symlink_to(f"../{layer}/diff")
    (tmp_path / "proc").mkdir()
    (tmp_path / "jobs").mkdir()
    return tmp_path


def process(root: Path, pid: int, mount: str, environment: str = "") -> None:
    place = root / "proc" / str(pid)
    (place / "ns").mkdir(parents=True)
    (place / "ns" / "mnt").symlink_to(f"mnt:[{pid}]")
    (place / "mountinfo").write_text(f"90 22 0:45 / / rw - overlay overlay rw,{mount},upperdir=/x\n")
    (place / "environ").write_text(environment)


def told(root: Path, wanted: tuple[str, ...] = (REFERENCE, "localhost/one:1.0")) -> dict[str, dict[str, Any]]:
    request = {"store": str(root / "store"), "repository": "jobs/lab", "wanted": list(wanted)}
    found = store_users.collect(request, str(root / "proc"), str(root / "jobs"))
    assert facts_from({"job_images": {"stored": found}})
    return {image["id"]: image for image in found}


def test_an_old_image_that_nobody_uses_goes_and_others_images_are_left_alone(store: Path) -> None:
    found = told(store)

    assert found.keys() == {A, B}
    assert (found[A]["remove"], found[A]["untag"]) == (False, [])
    assert (found[B]["remove"], found[B]["untag"]) == (True, ["localhost/gone:1"])


@pytest.mark.parametrize(
    "mount",
    [
        f"lowerdir=/run/clusterctl/images/2001-2001/overlay/l/{'O' * 26}:/run/x/overlay/l/{'B' * 26}",
        f"lowerdir=l/{'B' * 26}:l/{'O' * 26}",
        f"lowerdir=/var/lib/clusterctl/images/overlay/{'2' * 64}/diff",
    ],
)
def test_an_image_in_the_root_of_a_running_container_stays_with_its_name(store: Path, mount: str) -> None:
    process(store, 77, mount, "A=b\0SLURM_JOB_ID=12\0")

    found = told(store)

    assert (found[B]["remove"], found[B]["used"], found[B]["untag"]) == (False, ["job 12"], [])


def test_a_container_of_another_image_with_the_same_base_keeps_nothing(store: Path) -> None:
    process(store, 77, f"lowerdir=l/{'N' * 26}:l/{'B' * 26}")

    assert told(store)[B]["remove"]


def test_a_process_that_names_no_job_counts_by_its_number(store: Path) -> None:
    process(store, 77, f"lowerdir=l/{'O' * 26}")

    assert told(store)[B]["used"] == ["process 77"]


@pytest.mark.parametrize(
    ("kind", "file", "entry"),
    [
        ("containers", "containers.json", {"id": "1", "image": B, "layer": "9"}),
        ("containers", "volatile-containers.json", {"id": "1", "image": B}),
        ("layers", "layers.json", {"id": "9", "parent": "2" * 64}),
        ("layers", "volatile-layers.json", {"id": "9", "parent": "2" * 64}),
    ],
)
def test_what_a_jobs_storage_names_stays_while_no_container_of_it_runs(
    store: Path, kind: str, file: str, entry: dict[str, str]
) -> None:
    place = store / "jobs" / "31" / "storage" / f"overlay-{kind}"
    place.mkdir(parents=True)
    (place / file).write_text(json.dumps([entry]))

    assert told(store)[B]["used"] == ["job 31"]


@pytest.mark.parametrize("spoilt", ["fifo", "endless", "large", "deep", "directory", "elsewhere"])
def test_what_a_jobs_user_has_put_in_a_lists_place_is_neither_waited_for_nor_followed(
    store: Path, spoilt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = store / "jobs" / "31" / "storage" / "overlay-containers"
    listed = place / "containers.json"
    place.mkdir(parents=True)
    entry = json.dumps([{"id": "1", "image": B}])
    (store / "other.json").write_text(entry)
    if spoilt == "fifo":
        os.mkfifo(listed)
    elif spoilt == "endless":
        listed.symlink_to("/dev/zero")
    elif spoilt == "large":
        monkeypatch.setattr(store_users, "LIST_LIMIT", len(entry) - 1, raising=False)
        listed.write_text(entry)
    elif spoilt == "deep":
        listed.write_text("[" * 100_000)
    elif spoilt == "directory":
        listed.mkdir()
    else:
        place.rmdir()
        (store / "others").mkdir()
        (store / "others" / "containers.json").write_text(entry)
        place.symlink_to(store / "others")

    signal.alarm(60)
    try:
        assert told(store)[B]["used"] == []
    finally:
        signal.alarm(0)


def test_an_image_that_is_somebody_elses_too_stays_with_that_ones_name(store: Path) -> None:
    file = store / "store" / "overlay-images" / "images.json"
    other = "head:5000/clusterctl/ddp@sha256:" + B
    file.write_text(file.read_text().replace(f'"{OLD}"', f'"{OLD}", "{other}"'))

    found = told(store)[B]
    assert (found["remove"], found["untag"]) == (False, [OLD, "localhost/gone:1"])
    assert told(store, (OLD, "localhost/gone:1"))[B]["untag"] == []


def test_an_image_that_has_another_name_now_loses_only_the_old_one(store: Path) -> None:
    found = told(store, (REFERENCE, "localhost/uno:1.0"))

    assert (found[A]["remove"], found[A]["untag"]) == (False, ["localhost/one:1.0"])

    process(store, 77, f"lowerdir=l/{'N' * 26}:l/{'B' * 26}", "SLURM_JOB_ID=12\0")
    assert told(store, (REFERENCE, "localhost/uno:1.0"))[A]["untag"] == []


def test_what_is_replaced_goes_before_the_new_one_comes_only_where_both_do_not_fit(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = "head:5000/clusterctl/jobs/lab/gone@sha256:" + "c" * 64
    wanted = (REFERENCE, "localhost/one:1.0", new, "localhost/gone:1")
    found = [{**image} for image in told(store, wanted).values()]
    params = {"store": str(store / "store"), "wanted": wanted, "coming": [REFERENCE, new]}
    monkeypatch.setattr(removed.image_space, "lacking", lambda store, references: 10)

    monkeypatch.setattr(removed.image_space, "free", lambda path: 10**12)
    assert removed.due(found, params) == []
    assert [image["id"] for image in removed.due(found, {**params, "coming": []})] == [B]
    assert [image["id"] for image in removed.due(found, {**params, "wanted": wanted[:2]})] == [B]
    monkeypatch.setattr(removed.image_space, "free", lambda path: 10)
    assert [image["id"] for image in removed.due(found, params)] == [B]


def test_of_a_store_whose_lists_cannot_be_read_nothing_is_known(tmp_path: Path) -> None:
    assert not image_store.unreadable(str(tmp_path))
    (tmp_path / "overlay-images").mkdir()
    (tmp_path / "overlay-images" / "images.json").write_text("[]")
    assert not image_store.unreadable(str(tmp_path))
    (tmp_path / "overlay-images" / "images.json").write_text("[")
    assert image_store.unreadable(str(tmp_path)).endswith("images.json")

    found = judged({"job_images": {}})
    assert {found[name].verdict for name in ("stored", "collected")} == {Verdict.UNKNOWN}
    assert judged({"job_images": {"stored": []}}, builds=True)["collected"].verdict is Verdict.UNKNOWN


def test_a_job_that_ends_during_the_run_leaves_its_image_to_the_next_one() -> None:
    old = stored(OLD, "localhost/gone:1", remove=True)
    facts = on_node(stored(REFERENCE, IMAGE["stored"], id=B), old)

    assert judged(facts)["collected"].verdict is Verdict.FAIL
    now = judged(facts, left=[A])["collected"]
    assert now.verdict is Verdict.PASS
    assert "until the next provision" in now.observed
