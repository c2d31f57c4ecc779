"""The images that a user has built, for all their jobs: what is kept, found, and removed."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from provision import content

PROGRAM: dict[str, Any] = runpy.run_path(str(content.ROOT / "roles/slurm_image/files/image/own-images"))


def layout(directory: Path, images: dict[str, list[str]]) -> Path:
    """Make what Podman leaves: of each image its parts, but a layer that the nodes have."""
    blobs = directory / "blobs/sha256"
    blobs.mkdir(parents=True)
    entries = []
    for number, (name, layers) in enumerate(images.items()):
        parts = [f"config{number}", *layers]
        for part in parts:
            (blobs / part).write_text(part)
        digests = [{"digest": f"sha256:{part}"} for part in [*parts, "of-the-node"]]
        (blobs / f"manifest{number}").write_text(json.dumps({"config": digests[0], "layers": digests[1:]}))
        named = {"org.opencontainers.image.ref.name": name}
        entries.append({"digest": f"sha256:manifest{number}", "annotations": named})
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": entries}))
    return directory


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("train", "localhost/train:latest"),
        ("train:latest", "localhost/train:latest"),
        ("localhost/train", "localhost/train:latest"),
        ("train:v1", ""),
        ("python:3", "docker.io/library/python:3"),
        ("nvidia/cuda:12", "docker.io/nvidia/cuda:12"),
        ("head:5000/a", "head:5000/a:latest"),
        ("--name=train", ""),
        ("", ""),
    ],
)
def test_an_image_is_found_by_the_names_that_podman_finds_it_by(word: str, name: str) -> None:
    kept = ("localhost/train:latest", "docker.io/library/python:3", "docker.io/nvidia/cuda:12", "head:5000/a:latest")
    assert PROGRAM["meant"](word, kept) == name


def test_a_dropped_image_takes_with_it_what_no_other_needs(tmp_path: Path) -> None:
    directory = layout(tmp_path, {"localhost/a:latest": ["shared", "only-a"], "localhost/b:1": ["shared", "only-b"]})
    (directory / "blobs/sha256/replaced").write_text("")

    assert PROGRAM["drop"](str(directory), ["a"])

    assert list(PROGRAM["index"](str(directory))) == ["localhost/b:1"]
    assert {path.name for path in (directory / "blobs/sha256").iterdir()} == {
        "manifest1",
        "config1",
        "shared",
        "only-b",
    }
    assert not PROGRAM["drop"](str(directory), ["a", "nosuch"])


def test_nothing_is_removed_while_it_is_not_known_what_an_image_needs(tmp_path: Path) -> None:
    directory = layout(tmp_path, {"localhost/a:latest": ["layer"]})
    (directory / "blobs/sha256/manifest0").write_text("cut of")

    PROGRAM["collect"](str(directory))

    assert (directory / "blobs/sha256/layer").exists()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"manifests": [{"digest": "sha256:a"}]}'])
def test_a_directory_that_is_not_whole_has_no_images(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    assert PROGRAM["index"](str(tmp_path)) == {}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"HOME": "/home/ada"}, "/home/ada/.local/share/clusterctl/images"),
        ({"HOME": "/home/ada", "JOB_IMAGES": "/project/images"}, "/project/images"),
        ({"HOME": "/home/ada", "JOB_IMAGES": "none"}, ""),
        ({}, ""),
    ],
)
def test_images_are_in_the_home_unless_the_user_says_otherwise(environment: dict[str, str], place: str) -> None:
    assert PROGRAM["place"](environment) == place


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        ("--log-level=error run --rm train", True),
        ("image inspect train", True),
        ("--log-level=error exec train bash", False),
        ("logs train", False),
    ],
)
def test_a_containers_name_brings_no_image(
    tmp_path: Path, words: str, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = layout(tmp_path, {"localhost/train:latest": []})
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    asked: list[tuple[str, ...]] = []
    monkeypatch.setitem(
        PROGRAM["bring"].__globals__, "podman", lambda *words: (asked.append(words), ("", "not known"))[1]
    )

    PROGRAM["bring"](str(directory), words.split())

    assert bool(asked) is asks


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("Dockerfile", "build -t x:1 {place}"),
        ("Containerfile", "build {place}"),
        ("other", "build -f {place}/other -t x:1 /"),
        ("other", "--log-level=error build --file={place}/other ."),
    ],
)
def test_a_build_has_what_its_file_begins_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, words: str
) -> None:
    directory = layout(tmp_path / "kept", {f"localhost/{name}:1": [name] for name in ("base", "tools", "other")})
    text = "ARG X\nfrom --platform=linux/amd64 base:1 AS one\nFROM unknown:1\nCOPY --from=tools:1 /a /a\n"
    (tmp_path / file).write_text(text)
    asked: list[tuple[str, ...]] = []
    monkeypatch.setitem(
        PROGRAM["bring"].__globals__, "podman", lambda *words: (asked.append(words), ("", "not known"))[1]
    )
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    PROGRAM["bring"](str(directory), words.format(place=tmp_path).split())

    brought = [words[-1].rpartition(":localhost/")[2] for words in asked if words[0] == "pull"]
    assert brought == ["base:1", "tools:1"]


def test_an_images_size_is_that_of_what_is_kept(tmp_path: Path) -> None:
    directory = layout(tmp_path, {"localhost/a:latest": ["layer"]})

    found = PROGRAM["parts"](str(directory), "localhost/a:latest")

    assert [Path(path).name for path in found] == ["config0", "layer"]
