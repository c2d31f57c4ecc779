"""One image on its way into the registry: what skopeo and docker are told, and what they say in return."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest
from machines import plugin

from provision.model.job_images import JobImage

for name in ("image_registry", "image_recipe", "image_store", "image_space", "job_image_sources", "machine_commands"):
    plugin(f"plugins/module_utils/{name}.py", f"ansible.module_utils.{name}")
skopeo_words = plugin("plugins/module_utils/skopeo.py", "ansible.module_utils.skopeo")
made = plugin("roles/job_images/library/job_image.py")

HERE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
DIGEST = "sha256:" + "d" * 64
PLAIN = {"layers": [{"size": 7}, {"size": 5}]}


class Skopeo:
    """Answers as skopeo does: by the words that a question ends with."""

    def __init__(self, answers: dict[str, tuple[int | None, str]]) -> None:
        self.answers, self.ran = answers, []

    def run(self, command: list[str], *_: Any, **__: Any) -> tuple[int | None, str]:
        return next((one for end, one in self.answers.items() if " ".join(command).endswith(end)), (1, "no such thing"))

    def follow(self, command: list[str], *_: Any) -> tuple[int, str]:
        self.ran.append(command)
        if "--digestfile" in command:
            Path(command[command.index("--digestfile") + 1]).write_text(DIGEST)
        return 0, ""


def image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], kind: str = "reference",
    source: str = "harbor.site/x:1",
) -> tuple[Any, Skopeo]:  # fmt: skip
    skopeo = Skopeo({end: (one if isinstance(one, tuple) else (0, json.dumps(one))) for end, one in answers.items()})
    monkeypatch.setattr(made, "run", skopeo.run)
    monkeypatch.setattr(skopeo_words, "run", skopeo.run)
    monkeypatch.setattr(made.telling, "follow", skopeo.follow)
    declared = JobImage(name="x:1", kind=kind, source=source)  # type: ignore[arg-type]
    store = {"push": "head:5001/clusterctl", "pull": "head:5000/clusterctl", "cache": str(tmp_path)}
    told = {"images": [{**declared.as_dict(), "content": "", "text": ""}], "key": declared.key, "store": store}
    (tmp_path / "images").mkdir(exist_ok=True)
    return made.Image(
        {**told, "repository": "jobs/lab", "carried": str(tmp_path), "seconds": 60}, str(tmp_path)
    ), skopeo


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


def test_of_an_image_for_several_architectures_this_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"manifests": [{"digest": DIGEST, "platform": {"architecture": HERE}}]}
    one, skopeo = image(
        tmp_path, monkeypatch, {"docker://harbor.site/x:1": listed, f"docker://harbor.site/x@{DIGEST}": PLAIN}
    )

    assert one.make() == DIGEST
    assert len(skopeo.ran) == 1


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
    known.write_text(json.dumps({"auths": {"a": {"auth": "eA=="}}, "credsStore": "x"}))

    skopeo_words.login(tmp_path, {"harbor.site": {"username": "robot", "password": "secret"}}, known)

    told = json.loads((tmp_path / "config.json").read_text())
    assert told == {"auths": {"a": {"auth": "eA=="}, "harbor.site": {"auth": "cm9ib3Q6c2VjcmV0"}}}


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
