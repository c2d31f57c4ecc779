"""What modules tell of long work, read from what the programs print."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import plugin, ran_module, telling
from waiting import until

from provision import content
from provision.model import told

plugin("plugins/module_utils/image_registry.py", "ansible.module_utils.image_registry")
image_store = plugin("plugins/module_utils/image_store.py", "ansible.module_utils.image_store")
plugin("plugins/module_utils/image_sources.py", "ansible.module_utils.image_sources")
plugin("plugins/module_utils/image_space.py", "ansible.module_utils.image_space")
plugin("plugins/module_utils/machine_commands.py", "ansible.module_utils.machine_commands")
place = plugin("plugins/modules/cluster_image_place.py")

LAYERS = """\
The push refers to repository [head:5001/clusterctl/slurm]
39a122b5e6b5: Preparing
a5df8a32e222: Preparing
f471e6e5ae2a: Waiting
a5df8a32e222: Pushed
f471e6e5ae2a: Layer already exists
39a122b5e6b5: Pushed
1: digest: sha256:c685 size: 1783
"""

BUILD = """\
Sending build context to Docker daemon  2.048kB
Step 1/4 : FROM b10c7c5bdfc9
 ---> b10c7c5bdfc9
Step 3/4 : RUN apt-get update -q && apt-get install -qy hello tree
0 upgraded, 2 newly installed, 0 to remove and 1 not upgraded.
Unpacking hello (2.10-5) ...
Unpacking tree (2.2.1-1) ...
Setting up tree (2.2.1-1) ...
Setting up hello (2.10-5) ...
Step 4/4 : RUN pip install torch
Installing collected packages: mpmath, sympy, torch
"""

BASE = "I: automatically chosen mode: root\nW: no signature\nI: running apt-get update...\nI: extracting archives...\n"


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is told, as the control node hears it."""
    lines: list[str] = []

    def written(to: int, data: bytes) -> int:
        one = told.heard(data.decode(), "head")
        assert to == 2
        assert one is not None
        lines.append(one.text)
        return len(data)

    monkeypatch.setattr(telling.os, "write", written)
    return lines


@pytest.mark.parametrize(
    ("reader", "printed", "expected"),
    [
        (telling.Layers(), LAYERS, ["0 of 1 layers", "0 of 2 layers", "0 of 3 layers", "1 of 3 layers",
                                    "2 of 3 layers", "3 of 3 layers"]),
        (telling.Build(), BUILD, ["step 1 of 4 (FROM)", "step 3 of 4 (RUN)", "step 3 of 4 (RUN): 0 of 2 packages",
                                  "step 3 of 4 (RUN): 1 of 2 packages", "step 3 of 4 (RUN): 2 of 2 packages",
                                  "step 4 of 4 (RUN)", "step 4 of 4 (RUN): pip installs 3 packages"]),
        (telling.stages, BASE, ["automatically chosen mode: root", "running apt-get update", "extracting archives"]),
    ],
    ids=["push", "build", "base"],
)  # fmt: skip
def test_what_an_image_s_programs_print_says_how_far_it_is(
    reader: Callable[[str], str], printed: str, expected: list[str]
) -> None:
    told = [text for line in printed.splitlines() if (text := reader(line))]

    assert list(dict.fromkeys(told)) == expected


def test_a_package_is_done_when_it_is_unpacked_and_set_up() -> None:
    reader = telling.Build()
    told = [reader(line) for line in BUILD.splitlines()[4:9]]

    assert [text.partition("): ")[2] for text in told] == [""] * 5
    reader("Step 3/4 : RUN apt-get")
    told = [reader(line) for line in BUILD.splitlines()[4:9]]
    assert [text.partition("): ")[2][0] for text in told] == ["0", "0", "1", "1", "2"]


def test_of_what_comes_fast_the_last_is_told(heard: list[str]) -> None:
    output = telling.tell_of(io.BytesIO(LAYERS.encode()), telling.Layers(), "image x")

    assert output == LAYERS
    assert heard == ["image x: 3 of 3 layers"]


def test_of_what_comes_slowly_all_that_is_new_is_told(monkeypatch: pytest.MonkeyPatch, heard: list[str]) -> None:
    monkeypatch.setattr(telling, "EVERY", 0.001)
    steps = ["", "1 of 2", "1 of 2", "2 of 2"]

    def stream() -> Iterator[bytes]:
        for step in steps:
            yield step.encode()
            until(lambda step=step: not step or heard[-1:] == [f"x: {step}"])

    telling.tell_of(stream(), lambda line: line, "x")

    assert heard == ["x: 1 of 2", "x: 2 of 2"]


def test_a_followed_program_ends_as_it_ends_with_all_that_it_printed(heard: list[str]) -> None:
    script = "echo 1906eb67287a: Pull complete; printf '\\377\\n' >&2; exit 3"

    code, output = telling.follow(["sh", "-c", script], telling.Layers(), "x", environment={"LC_ALL": "C"})

    assert (code, output) == (3, "1906eb67287a: Pull complete\n\N{REPLACEMENT CHARACTER}\n")
    assert heard == ["x: 1 of 1 layers"]


def test_the_mark_is_one_on_both_sides() -> None:
    submit = content.ROOT / "roles" / "ddp_validation" / "files" / "ddp_submit.py"

    assert telling.MARK == told.MARK
    assert f'MARK = "{told.MARK}"\n' in submit.read_text(encoding="utf-8")


def test_where_nobody_listens_the_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(to: int, data: bytes) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(telling.os, "write", closed)

    telling.tell("x")


def test_a_podman_s_progress_is_what_the_store_lists(tmp_path: Path) -> None:
    layers = tmp_path / "overlay-layers" / "layers.json"
    layers.parent.mkdir()
    layers.write_text(json.dumps([{"id": "old"}]))
    work = place.Placing(str(tmp_path), "head:5000/clusterctl/ddp@sha256:00")
    assert work.look() == ""

    for number in range(3):
        assert work.read(f"Copying blob sha256:{number}\n") == ""
    layers.write_text(json.dumps([{"id": "old"}, {"id": "new"}]))

    assert work.look() == "image ddp: into the node's store: 1 of 3 layers"


@pytest.mark.parametrize("text", ["", "{", "3", "null"])
def test_a_store_s_list_that_cannot_be_read_names_no_layer(tmp_path: Path, text: str) -> None:
    (tmp_path / "overlay-layers").mkdir()
    (tmp_path / "overlay-layers" / "layers.json").write_text(text)

    assert image_store.listed(tmp_path, "layers") == []


def module(*argv: str) -> tuple[dict[str, Any], str]:
    """Run command_followed as Ansible would; return its result and what it wrote on standard error."""
    done = ran_module("plugins/modules/command_followed.py", {"argv": list(argv)})
    return dict(json.loads(done.stdout)), done.stderr


def test_a_program_tells_through_the_module_and_its_output_is_its_own() -> None:
    script = "echo out; echo clusterctl-told: ended A of 3 >&2; echo clusterctl-told: gone x >&2; echo no >&2; exit 4"

    result, errors = module("sh", "-c", script)

    assert (result["rc"], result["stdout"], result["failed"]) == (4, "out\n", True)
    assert result["stderr"] == "clusterctl-told: gone x\nno\n"
    assert errors == "clusterctl-told: ended A of 3\n"


def test_a_program_that_is_not_there_fails_and_says_so() -> None:
    result, _ = module("/nonexistent/program")

    assert result["failed"]
    assert "No such file" in result["msg"]


def test_a_program_that_succeeds_is_no_failure() -> None:
    result, _ = module("true")

    assert (result["rc"], result.get("failed", False)) == (0, False)
