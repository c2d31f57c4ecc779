"""From where a machine gets an image: the mirror near it where that answers, else the registry itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Template
from machines import plugin

from provision import content

plugin("plugins/module_utils/image_registry.py", "ansible.module_utils.image_registry")
sources = plugin("plugins/module_utils/image_sources.py", "ansible.module_utils.image_sources")
plugin("plugins/module_utils/image_store.py", "ansible.module_utils.image_store")
plugin("plugins/module_utils/image_space.py", "ansible.module_utils.image_space")
place = plugin("plugins/modules/cluster_image_place.py")
engine = plugin("plugins/modules/cluster_container.py")

IMAGE = f"head:5000/clusterctl/slurm@sha256:{'a' * 64}"
NEAR = f"node1:5002/clusterctl/slurm@sha256:{'a' * 64}"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """What the role writes on a machine that node1 passes images on to."""
    text = (content.ROOT / "roles/container_images/templates/registries.conf.j2").read_text()
    names = {"__container_images_pull": "head:5000", "__container_images_mirror": "node1:5002"}
    path = tmp_path / "clusterctl.conf"
    path.write_text(Template(text).render(names))
    return path


def test_an_image_by_digest_is_asked_of_the_mirror_that_the_role_has_written(conf: Path) -> None:
    assert sources.mirror_of(IMAGE, conf) == NEAR


def test_the_file_is_where_the_role_writes_it() -> None:
    data = yaml.safe_load((content.ROOT / "roles/container_images/vars/main.yml").read_text())

    assert str(sources.CONF) == data["__container_images_mirror_conf"]


@pytest.mark.parametrize("other", ["head:5000/clusterctl/slurm:1", IMAGE.replace("head", "harbor"), "slurm", ""])
def test_a_tag_or_another_registrys_image_is_asked_of_no_mirror(conf: Path, other: str) -> None:
    assert sources.mirror_of(other, conf) == ""


def test_without_a_mirror_nothing_is_asked(tmp_path: Path) -> None:
    assert sources.near(IMAGE, tmp_path / "none") == ""


def test_a_mirror_that_does_not_answer_is_passed_over(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "answers", lambda host: host == "node1:5002")
    assert sources.near(IMAGE, conf) == NEAR
    monkeypatch.undo()
    conf.write_text(conf.read_text().replace("node1:5002", "127.0.0.1:1"))
    assert sources.near(IMAGE, conf) == ""


class Module:
    """What modules are run with."""

    check_mode = False

    def __init__(self, store: Path) -> None:
        self.params = {"store": str(store), "reference": IMAGE, "name": "", "tool": "slurm", "together": []}

    def exit_json(self, **told: Any) -> None:
        raise SystemExit(f"changed {told['changed']}")

    def fail_json(self, msg: str) -> None:
        raise SystemExit(msg)


@pytest.mark.parametrize(
    ("codes", "registries", "ends"),
    [
        ([0], [True], "changed True"),
        # What the mirror has may not be what its digest says.
        ([125, 0], [True, False], "changed True"),
        ([125, 125], [True, False], "could not be put"),
        # A pull that was killed, or took too long, is no reason to have all nodes at the controller.
        ([137], [True], "could not be put"),
        ([124], [True], "not done within"),
    ],
)
def test_an_image_is_placed_by_way_of_the_mirror_and_without_it_where_that_has_something_wrong(
    codes: list[int], registries: list[bool], ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def pull(_: Any, command: list[str]) -> tuple[int, str]:
        asked.append(f"CONTAINERS_REGISTRIES_CONF=/run/machine-{str(sources.CONF)[1:]}" in command)
        return codes[len(asked) - 1], ""

    monkeypatch.setattr(place, "AnsibleModule", lambda **_: Module(tmp_path))
    monkeypatch.setattr(place.image_sources, "near", lambda _: NEAR)
    monkeypatch.setattr(place.image_store, "has", lambda *_: bool(asked) and codes[len(asked) - 1] == 0)
    monkeypatch.setattr(place.Placing, "run", pull)

    with pytest.raises(SystemExit, match=ends):
        place.main()
    assert asked == registries


@pytest.mark.parametrize(
    ("near", "codes", "pulled"),
    [
        ("", [0], [IMAGE]),
        (NEAR, [0, 0], [NEAR, IMAGE]),
        # Whatever is wrong with the mirror, the registry has the image.
        (NEAR, [1, 0], [NEAR, IMAGE]),
    ],
)
def test_the_engine_gets_layers_from_the_mirror_and_the_name_from_the_registry(
    near: str, codes: list[int], pulled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    removed: list[tuple[str, ...]] = []

    class Docker:
        module = Module(Path("/"))

        def attempt(self, *words: str) -> tuple[int, str]:
            removed.append(words)
            return 0, ""

    def follow(command: list[str], *_: Any, **__: Any) -> tuple[int, str]:
        said.append(command[-1])
        return codes[len(said) - 1], ""

    monkeypatch.setattr(engine.image_sources, "near", lambda _: near)
    monkeypatch.setattr(engine, "follow", follow)

    engine.pull(Docker(), IMAGE)

    assert said == pulled
    assert removed == ([("image", "rm", NEAR)] if near and codes[0] == 0 else [])
