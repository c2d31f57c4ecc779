"""One image on its way into the registry: what skopeo and docker are told, and what they say in return."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import platform
import tarfile
from pathlib import Path
from typing import Any

import pytest
from machines import plugin

from provision.model.job_images import JobImage

for name in (
    "image_archive",
    "image_registry",
    "image_recipe",
    "image_store",
    "image_space",
    "job_image_sources",
    "machine_commands",
):
    plugin(f"plugins/module_utils/{name}.py", f"ansible.module_utils.{name}")
skopeo_words = plugin("plugins/module_utils/skopeo.py", "ansible.module_utils.skopeo")
build = plugin("plugins/module_utils/job_image_build.py", "ansible.module_utils.job_image_build")
made = plugin("roles/job_images/library/job_image.py")

HERE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
DIGEST = "sha256:" + "d" * 64
PLAIN = {"layers": [{"size": 7}, {"size": 5}]}


class Skopeo:
    """Answers as skopeo does: by the words that a question ends with."""

    def __init__(self, answers: dict[str, tuple[int | None, str]]) -> None:
        self.answers = answers
        self.ran: list[list[str]] = []
        self.asked: list[tuple[list[str], float]] = []

    def run(self, command: list[str], seconds: float, errors: Any = True, **_: Any) -> tuple[int | None, str]:
        self.asked.append((command, seconds))
        words = " ".join(command)
        code, text = next((one for end, one in self.answers.items() if words.endswith(end)), (1, "no such thing"))
        if code and not isinstance(errors, bool):
            errors.write(text.encode())
            return code, ""
        return code, text

    def follow(self, command: list[str], *_: Any) -> tuple[int, str]:
        self.ran.append(command)
        if "--digestfile" in command:
            Path(command[command.index("--digestfile") + 1]).write_text(DIGEST)
        return 0, ""


def image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], kind: str = "reference",
    source: str = "harbor.site/x:1", **more: Any,
) -> tuple[Any, Skopeo]:  # fmt: skip
    skopeo = Skopeo({end: (one if isinstance(one, tuple) else (0, json.dumps(one))) for end, one in answers.items()})
    monkeypatch.setattr(build, "run", skopeo.run)
    monkeypatch.setattr(skopeo_words, "run", skopeo.run)
    monkeypatch.setattr(made.telling, "follow", skopeo.follow)
    declared = JobImage(name="x:1", kind=kind, source=source, **more)  # type: ignore[arg-type]
    store = {"push": "head:5001/clusterctl", "pull": "head:5000/clusterctl", "cache": str(tmp_path)}
    told = {"images": [{**declared.as_dict(), "content": "", "text": ""}], "key": declared.key, "store": store}
    (tmp_path / "images").mkdir(exist_ok=True)
    one = made.Image({**told, "repository": "jobs/lab", "carried": str(tmp_path), "seconds": 60})
    one.login = one.scratch = str(tmp_path)
    return one, skopeo


def test_a_reference_is_copied_once_and_remembered_by_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, skopeo = image(
        tmp_path,
        monkeypatch,
        {"--raw docker://harbor.site/x:1": PLAIN, "--config docker://harbor.site/x:1": {"architecture": HERE}},
    )

    assert one.make() == DIGEST
    assert one.known.built() == DIGEST
    (copy,) = skopeo.ran
    assert copy[-2] == "docker://harbor.site/x:1"
    assert copy[-1].startswith("docker://head:5001/clusterctl/jobs/lab/x:1-")


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (
            {"docker://harbor.site/x:1": {"manifests": [{"digest": "d", "platform": {"architecture": "ppc64le"}}]}},
            "it is for ppc64le, and the cluster's machines are",
        ),
        (
            {"--raw docker://harbor.site/x:1": PLAIN, "--config docker://harbor.site/x:1": {"architecture": "s390x"}},
            "it is for s390x",
        ),
        (
            {
                "x:1": (
                    1,
                    'level=fatal msg="reading manifest 1 in harbor.site/x: unauthorized: authentication required"',
                )
            },
            "job_images_logins: {harbor.site: {username: ..., password: ...}}",
        ),
        ({"x:1": (1, 'level=fatal msg="reading manifest 1: manifest unknown"')}, "it has no such image"),
        ({"x:1": (1, "dial tcp: lookup harbor.site: no such host")}, "harbor.site: it does not answer from here"),
        ({"x:1": (None, "no answer in 120 s")}, "it does not answer from here"),
        ({"x:1": (1, "tls: x509: certificate signed by unknown authority")}, "/etc/docker/certs.d/harbor.site/ca.crt"),
    ],
)
def test_why_a_reference_cannot_be_had_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], words: str
) -> None:
    one, skopeo = image(tmp_path, monkeypatch, answers)

    with pytest.raises(made.ImageError) as refused:
        one.make()
    assert words in str(refused.value)
    assert skopeo.ran == [], "nothing was copied"
    assert one.known.built() is None


def test_what_does_not_fit_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = {"layers": [{"size": 10**18}]}
    one, skopeo = image(
        tmp_path,
        monkeypatch,
        {"--raw docker://harbor.site/x:1": huge, "--config docker://harbor.site/x:1": {"architecture": HERE}},
    )

    with pytest.raises(made.ImageError, match="GB free, and 1000000000"):
        one.make()
    assert skopeo.ran == []


def test_an_archive_is_dockers_or_ocis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.tar"
    file.write_text("x")
    for kind in ("docker-archive", "oci-archive"):
        one, skopeo = image(tmp_path, monkeypatch, {f"{kind}:{file}": {"architecture": HERE}}, "archive", str(file))
        assert one.make() == DIGEST
        assert skopeo.ran[0][-2] == f"{kind}:{file}"

    several = (1, 'level=fatal msg="Unexpected tar manifest.json: expected 1 item, got 2"')
    one, _ = image(tmp_path, monkeypatch, {f"docker-archive:{file}": several}, "archive", str(file))
    with pytest.raises(made.ImageError, match="it holds several images"):
        one.make()


def test_logins_are_the_engines_own_and_the_sites_and_nobody_else_reads_them(tmp_path: Path) -> None:
    known = tmp_path / "known.json"
    auths = {"a": {"auth": "eA=="}}
    own = {"proxies": {"default": {"httpProxy": "http://p:3128"}}, "credsStore": "x"}
    helpers = {"credHelpers": {"b": "y", "harbor.site": "z"}, "currentContext": "far"}
    known.write_text(json.dumps({"auths": auths, **own, **helpers}))

    skopeo_words.login(tmp_path, {"harbor.site": {"username": "robot", "password": "secret"}}, known)

    auths["harbor.site"] = {"auth": "cm9ib3Q6c2VjcmV0"}
    told = json.loads((tmp_path / "config.json").read_text())
    # A helper without a name has Docker read the file for this registry, and not its store.
    assert told == {**own, "auths": auths, "credHelpers": {"b": "y", "harbor.site": ""}}
    assert json.loads((tmp_path / "auth.json").read_text()) == {"auths": auths, "credHelpers": {"b": "y"}}


def test_a_projects_login_is_asked_before_the_helper_of_its_registry(tmp_path: Path) -> None:
    known = tmp_path / "known.json"
    known.write_text(json.dumps({"credHelpers": {"b": "y", "harbor.site": "z"}}))

    skopeo_words.login(tmp_path, {"harbor.site/ai": {"username": "robot", "password": "secret"}}, known)

    assert json.loads((tmp_path / "auth.json").read_text()) == {
        "auths": {"harbor.site/ai": {"auth": "cm9ib3Q6c2VjcmV0"}},
        "credHelpers": {"b": "y"},
    }
    # Docker asks as before.
    assert json.loads((tmp_path / "config.json").read_text())["credHelpers"]["harbor.site"] == "z"


def test_dockers_own_registry_is_logged_in_to_by_both_its_names(tmp_path: Path) -> None:
    skopeo_words.login(tmp_path, {"docker.io": {"username": "robot", "password": "secret"}}, tmp_path / "none")

    auth = {"auth": "cm9ib3Q6c2VjcmV0"}
    told = json.loads((tmp_path / "config.json").read_text())
    assert told == {"auths": {"docker.io": auth, "https://index.docker.io/v1/": auth}}


@pytest.mark.parametrize(
    "login", ["robot:secret", None, ["secret"], {"username": "secret"}, {"username": "secret", "password": None}]
)
def test_a_login_that_only_the_run_knew_and_is_none_is_refused_by_its_registry_alone(
    tmp_path: Path, login: Any
) -> None:
    with pytest.raises(ValueError, match=r"job_images_logins: harbor.site has not both") as refused:
        skopeo_words.login(tmp_path, {"harbor.site": login}, tmp_path / "none")

    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "Step 1/1 : FROM nothere\npull access denied for nothere, repository does not exist",
            "declare its base image",
        ),
        ("make: foo: not found\nThe command '/bin/sh -c make' returned a non-zero code: 2", "make: foo: not found"),
    ],
)
def test_a_build_that_fails_shows_its_own_last_lines_and_what_to_do_about_a_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, words: str
) -> None:
    file = tmp_path / "Containerfile"
    file.write_text("FROM nothere\n")
    one, _ = image(tmp_path, monkeypatch, {}, "containerfile", str(file))
    monkeypatch.setattr(made.telling, "follow", lambda *_: (1, said))

    with pytest.raises(made.ImageError) as refused:
        one.make()
    assert words in str(refused.value)
    assert ("base image" in str(refused.value)) is ("nothere" in said), "only where it is the base image"


def test_of_an_index_with_windows_the_image_for_linux_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(system: str, digest: str) -> dict[str, Any]:
        return {"digest": digest, "platform": {"os": system, "architecture": HERE}}

    listed = {"manifests": [entry("linux", DIGEST), entry("windows", "sha256:" + "e" * 64)]}
    one, _ = image(
        tmp_path, monkeypatch, {"docker://harbor.site/x:1": listed, f"docker://harbor.site/x@{DIGEST}": PLAIN}
    )
    assert one.make() == DIGEST

    one, _ = image(tmp_path, monkeypatch, {"docker://harbor.site/x:1": {"manifests": listed["manifests"][1:]}})
    with pytest.raises(made.ImageError, match=f"it is for windows/{HERE}"):
        one.make()


def test_layers_that_the_registry_has_need_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = {"layers": [{"size": 10**18, "digest": DIGEST}, {"size": 5, "digest": "sha256:" + "f" * 64}]}
    blob = tmp_path / "registry/docker/registry/v2/blobs/sha256/dd" / ("d" * 64) / "data"
    blob.parent.mkdir(parents=True)
    blob.touch()
    one, skopeo = image(
        tmp_path,
        monkeypatch,
        {"--raw docker://harbor.site/x:1": huge, "--config docker://harbor.site/x:1": {"architecture": HERE}},
    )

    assert one.make() == DIGEST
    assert skopeo.ran


def test_what_comes_with_the_inventory_lies_where_skopeo_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / JobImage(name="x:1", kind="archive", source="x.tar").place
    place.mkdir()
    (place / "source").write_bytes(b"x" * 600)
    one, skopeo = image(tmp_path, monkeypatch, {"/source": {"architecture": HERE}}, "archive", "x.tar")
    assert one.make() == DIGEST

    kind, _, path = skopeo.ran[0][-2].partition(":")
    # docker-archive:PATH[:REFERENCE]: what comes after a colon is another thing.
    assert (kind, path.count(":")) == ("docker-archive", 0)


def test_an_archive_is_read_once_in_the_time_of_its_image_and_unpacked_where_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.tar"
    file.write_bytes(b"x" * 600)
    answers: dict[str, Any] = {str(file): (1, 'level=fatal msg="no such thing"')}
    one, skopeo = image(tmp_path, monkeypatch, answers, "archive", str(file))
    with pytest.raises(made.ImageError, match="it is no archive of an image: no such thing"):
        one.make()
    assert [command[-1].partition(":")[0] for command, _ in skopeo.asked] == ["docker-archive", "oci-archive"]
    for command, seconds in skopeo.asked:
        assert command[command.index("--tmpdir") + 1] == one.scratch
        assert command.index("--tmpdir") < command.index("inspect"), "it is an option of skopeo itself"
        assert 50 < seconds <= 60

    for answer, words in (
        ((None, "did not answer in 60 s"), "not read within 60 s: job_images_timeout"),
        ((1, 'level=fatal msg="write /x: no space left on device"'), "the controller's disk is full"),
    ):
        one, skopeo = image(tmp_path, monkeypatch, {str(file): answer}, "archive", str(file))
        with pytest.raises(made.ImageError, match=words):
            one.make()
        assert len(skopeo.asked) == 1, "it is not read a second time"


def test_a_compressed_archive_needs_room_for_what_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.tar"
    plain = (b"\0" * 257 + b"ustar").ljust(1000, b"\0")
    large = b"\0" * 257 + b"ustar" + b"\0" * 5000
    answer = {"x.tar": {"architecture": HERE}, "archive.tar": {"architecture": HERE}}
    free = made.image_space.RESERVE + 1500
    monkeypatch.setattr(made.image_space, "free", lambda _: free)
    monkeypatch.setattr(made.image_archive, "CHUNK", 1000)
    for data, fits in ((plain, True), (gzip.compress(plain), True), (b"\x28\xb5\x2f\xfd".ljust(1000, b"x"), False)):
        file.write_bytes(data)
        one, skopeo = image(tmp_path, monkeypatch, answer, "archive", str(file))
        if fits:
            assert one.make() == DIGEST
            continue
        with pytest.raises(made.ImageError, match="it does not fit"):
            one.make()
        assert skopeo.asked == [], "before it is unpacked"

    # What is unpacked takes of the disk, and is counted while it grows.
    file.write_bytes(gzip.compress(large))
    whole = tmp_path / "archive.tar"
    monkeypatch.setattr(made.image_space, "free", lambda _: free - (whole.stat().st_size if whole.exists() else 0))
    whole.unlink()
    one, skopeo = image(tmp_path, monkeypatch, answer, "archive", str(file))
    with pytest.raises(made.ImageError, match="it does not fit"):
        one.make()
    assert skopeo.asked == []


def test_gzip_is_unpacked_before_skopeo_which_cannot_read_it_and_what_is_cut_off_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, data = tmp_path / "x.tar.gz", b"\0" * 257 + b"ustar" + bytes(range(256)) * 50
    for packed, whole in ((gzip.compress(data), True), (bz2.compress(data), True), (gzip.compress(data)[:90], False)):
        file.write_bytes(packed)
        one, skopeo = image(tmp_path, monkeypatch, {"archive.tar": {"architecture": HERE}}, "archive", str(file))
        if whole:
            assert one.make() == DIGEST
            assert (tmp_path / "archive.tar").read_bytes() == data
            assert skopeo.ran[0][-2] == f"docker-archive:{tmp_path}/archive.tar"
            continue
        with pytest.raises(made.ImageError, match="is not whole, and cannot be unpacked"):
            one.make()


def test_what_a_killed_run_has_left_is_removed_and_so_is_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = image(tmp_path, monkeypatch, {})
    run = tmp_path / "run"
    old = [tmp_path / "job-image-old", run / "clusterctl-login-old"]
    for place in old:
        place.mkdir(parents=True)
        (place / "docker-tar1").touch()

    with made.places(one, {**one.params, "logins": {"h": {"username": "a", "password": "b"}}}, str(run)):
        assert not any(place.exists() for place in old)
        assert (Path(one.login) / "config.json").is_file()
        assert (Path(one.login).stat().st_mode & 0o777, Path(one.scratch).is_dir()) == (0o700, True)
    assert not Path(one.login).exists()
    assert not Path(one.scratch).exists()


class Engine(Skopeo):
    """Docker's, which builds and pushes whatever it is given; what it was given is kept."""

    text = ""

    def run(self, command: list[str], seconds: float, errors: Any = True, **_: Any) -> tuple[int | None, str]:
        self.asked.append((command, seconds))
        return 0, f"7 {HERE} linux"

    def follow(self, command: list[str], _reader: Any, _told: str, stdin: Any, _environment: Any) -> tuple[int, str]:
        words = command[3:]
        self.ran.append(words)
        if words[1] == "build":
            self.text = (
                Path(words[words.index("--file") + 1]).read_text() if "--file" in words else stdin.read().decode()
            )
        return 0, f"digest: {DIGEST} size: 7"


def built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path, base: str = "", revision: int = 1
) -> tuple[Any, Engine]:
    one, _ = image(tmp_path, monkeypatch, {}, "containerfile", str(path), revision=revision)
    engine = Engine({})
    monkeypatch.setattr(build, "run", engine.run)
    monkeypatch.setattr(made.telling, "follow", engine.follow)
    if base:
        before = JobImage(name=base, kind="reference", source="harbor.site/b:1")
        one.params["images"].insert(0, {**before.as_dict(), "content": "", "text": ""})
    recipes = made.job_image_sources.recipes(one.params)
    for other in one.params["images"][:-1]:
        record = made.job_image_sources.remembered(one.params, other, recipes[other["key"]]).record
        record.write_text(json.dumps({"digest": DIGEST}))
    return one, engine


def test_a_build_takes_earlier_images_by_digest_and_no_name_in_the_engine_from_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "Containerfile"
    file.write_text(
        "FROM cuda:12.4 AS cuda\nFROM localhost/cuda:12.4\nCOPY --from=cuda /a /b\nCOPY --from=cuda:12.4 c d\n"
    )
    one, engine = built(tmp_path, monkeypatch, file, "cuda:12.4")

    assert one.make() == DIGEST
    base = f"head:5000/clusterctl/jobs/lab/cuda@{DIGEST}"
    assert engine.text == f"FROM {base} AS cuda\nFROM {base}\nCOPY --from=cuda /a /b\nCOPY --from={base} c d\n"
    asked = [command for command, _ in engine.asked]
    assert not [command for command in asked if "tag" in command]
    assert [command[-1] for command in asked if "rm" in command] == [base], "and only that is removed"


def test_a_build_sees_nothing_of_gits_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = tmp_path / "context-of-site"
    (context / "below" / ".git").mkdir(parents=True)
    (context / "below" / ".git" / "HEAD").write_text("x")
    (context / "below" / "kept").write_text("x")
    (context / "Containerfile").write_text("FROM scratch\n")
    one, engine = built(tmp_path, monkeypatch, context)
    assert one.make() == DIGEST

    seen = Path(next(words for words in engine.ran if words[1] == "build")[-1])
    found = sorted(str(file.relative_to(seen)) for file in seen.rglob("*"))
    assert found == ["Containerfile", "below", "below/kept"]
    assert (context / "below" / ".git" / "HEAD").exists(), "the site's own is left alone"


def test_a_raised_revision_is_built_without_what_docker_kept_and_another_file_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "Containerfile"
    for revision, text, anew in ((1, "a", False), (1, "b", False), (2, "b", True), (2, "c", False), (3, "c", True)):
        file.write_text(f"FROM scratch\nLABEL a={text}\n")
        one, engine = built(tmp_path, monkeypatch, file, revision=revision)
        one.make()
        assert [{"--no-cache", "--pull"} <= set(words) for words in engine.ran if words[1] == "build"] == [anew]


def test_a_directory_that_cannot_be_read_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a server that makes root nobody: a build would lack what nobody has counted."""
    scandir = os.scandir
    (tmp_path / "closed").mkdir()

    def refused(path: str) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)

    with pytest.raises(PermissionError):
        build.job_image_sources.listing(tmp_path)


def test_a_directory_is_carried_as_its_recipe_counts_it(tmp_path: Path) -> None:
    carried = plugin("roles/job_images/action_plugins/job_image_carried.py")
    source = tmp_path / "mine"
    (source / "a" / ".git").mkdir(parents=True)
    for name in ("Containerfile", ".git", "a/run.sh", "a/.git/HEAD"):
        (source / name).write_text(name)
    (source / "a" / "run.sh").chmod(0o755)
    (source / "linked").symlink_to("a/run.sh")

    carried.archive(source, tmp_path / "x.tar.gz")

    with tarfile.open(tmp_path / "x.tar.gz") as tar:
        members = {one.name: one for one in tar.getmembers()}
    assert sorted(members) == ["Containerfile", "a/run.sh", "linked"]
    assert (members["a/run.sh"].mode & 0o777, members["a/run.sh"].uid) == (0o755, 0)
    assert members["linked"].isfile(), "what it leads to, as it is counted"
