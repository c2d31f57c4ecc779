"""The words with which a container is started: what gives it GPUs, and that nothing changes for those without."""

from __future__ import annotations

from typing import Any

import pytest
from machines import plugin

module = plugin("plugins/modules/cluster_container.py")

ALL = ["nvidia.com/gpu=all"]


def params(**other: Any) -> dict[str, Any]:
    lists = ("capabilities", "security", "tmpfs", "mounts", "ulimits", "device_rules")
    texts = {"pid": "host", "ipc": "", "cgroupns": ""}
    return {
        **{key: [] for key in lists}, **texts, "name": "slurmd", "image": "slurm@sha256:0", "command": ["slurmd", "-D"],
        "user": "0:0", "read_only": False, "labels": {"a": "b"}, **other,
    }  # fmt: skip


def test_a_container_without_gpus_is_started_with_the_words_of_old() -> None:
    # The words are the label by which a container is told to be as wanted: another word would replace it for nothing.
    expected = (
        "--name slurmd --network host --restart unless-stopped --user 0:0 --cap-drop ALL --pid host --label a=b "
        "slurm@sha256:0 slurmd -D"
    )

    assert " ".join(module.arguments(params(), module.gpu_words([], "28.3.0", "580.95.05"))) == expected


@pytest.mark.parametrize("version", ["25.0.0", "26.1.5+dfsg1", "29.0.1"])
def test_an_engine_that_knows_devices_by_name_is_told_them(version: str) -> None:
    assert module.gpu_words(ALL, version, "580.95.05")[2:] == ["--device", "nvidia.com/gpu=all"]


@pytest.mark.parametrize("version", ["20.10.24+dfsg1", "24.0.7"])
def test_an_older_engine_starts_it_with_the_runtime_that_does(version: str) -> None:
    assert module.gpu_words(ALL, version, "580.95.05")[2:] == [
        "--runtime", "nvidia", "--env", "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all",
    ]  # fmt: skip


def test_another_driver_makes_another_container() -> None:
    old, new = (
        module.arguments(params(), module.gpu_words(ALL, "28.3.0", driver)) for driver in ("580.95.05", "580.105.08")
    )

    assert old != new
    assert module.needed({"Config": {"Labels": {module.LABEL: str(old)}}, "State": {}}, str(new)) == "replace"


def test_image_and_command_stay_last() -> None:
    words = module.arguments(params(), module.gpu_words(ALL, "28.3.0", "580.95.05"))

    assert words[-3:] == ["slurm@sha256:0", "slurmd", "-D"]
