"""Whether images fit on a node's disk, from the registry's manifests and the store's own lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import plugin

plugin("plugins/module_utils/image_registry.py", "ansible.module_utils.image_registry")
image_store = plugin("plugins/module_utils/image_store.py", "ansible.module_utils.image_store")
image_space = plugin("plugins/module_utils/image_space.py", "ansible.module_utils.image_space")

ONE, TWO = "head:5000/clusterctl/one@sha256:" + "1" * 64, "head:5000/clusterctl/two@sha256:" + "2" * 64
MANIFESTS: dict[str, Any] = {
    ONE: {"layers": [{"digest": "sha256:base", "size": 100}, {"digest": "sha256:a", "size": 20}]},
    TWO: {"layers": [{"digest": "sha256:base", "size": 100}, {"digest": "sha256:b", "size": 3}]},
}


def store(tmp_path: Path, names: list[str], layers: list[str]) -> str:
    for kind, entries in (
        ("images", [{"id": "1", "names": names}]),
        ("layers", [{"compressed-diff-digest": digest} for digest in layers]),
    ):
        (tmp_path / f"overlay-{kind}").mkdir(exist_ok=True)
        (tmp_path / f"overlay-{kind}" / f"{kind}.json").write_text(json.dumps(entries))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("names", "layers", "bytes_"),
    [([], [], 123), ([ONE], ["sha256:base", "sha256:a"], 3), ([], ["sha256:base"], 23), ([ONE, TWO], [], 0)],
)
def test_only_what_the_store_lacks_is_counted_and_a_layer_of_two_images_once(
    tmp_path: Path, names: list[str], layers: list[str], bytes_: int
) -> None:
    assert image_space.lacking(store(tmp_path, names, layers), [ONE, TWO], MANIFESTS.__getitem__) == bytes_


def test_what_does_not_fit_is_said_with_the_numbers() -> None:
    assert image_space.problem(5 * 10**9, "/var/lib/x", 5 * 10**9) == (
        "/var/lib/x has 5.0 GB free, and 5.0 GB are needed, with 1 GB left for the machine"
    )
    assert image_space.problem(5 * 10**9, "/var/lib/x", 6 * 10**9) == ""
    assert image_space.problem(0, "/var/lib/x", 0) == "", "nothing is to come"


def test_a_directory_that_is_not_there_yet_has_the_room_of_its_parent(tmp_path: Path) -> None:
    assert image_space.free(str(tmp_path / "a" / "b")) > 0


def test_an_image_is_there_under_a_name_only_where_both_are_the_same_images(tmp_path: Path) -> None:
    where = store(tmp_path, [ONE, "localhost/one:latest"], [])

    assert image_store.has(where, ONE)
    assert image_store.has(where, ONE, "localhost/one:latest")
    assert not image_store.has(where, ONE, "localhost/other:latest")
    assert not image_store.has(str(tmp_path / "none"), ONE)


def test_a_list_that_cannot_be_read_has_nothing(tmp_path: Path) -> None:
    where = store(tmp_path, [ONE], [])
    for text in ("{", '{"a": 1}', '["word"]'):
        (tmp_path / "overlay-images" / "images.json").write_text(text)
        assert not image_store.has(where, ONE), text
