"""What job_images may say, and where in the inventory it is refused, before any machine is contacted."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from declare import cluster

from provision.errors import ClusterctlError
from provision.inventory import declared_images, loader
from provision.inventory.valid import declared
from provision.model.job_images import JobImage, archive_problem, full_name

INI = """\
[slurm_controller]
head ansible_host=10.0.0.1
[slurm_compute]
node1 ansible_host=10.0.0.2 node_cpus=4 node_real_memory=1000
[all:vars]
cluster_name=lab
"""
ARCHIVE = {"name": "a", "archive": "/x.tar"}


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("pytorch-dist", "localhost/pytorch-dist:latest"),
        ("team/pytorch:2.4-CUDA", "localhost/team/pytorch:2.4-CUDA"),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "nvcr.io/nvidia/pytorch:24.05-py3"),
        ("head:5000/x", "head:5000/x:latest"),
    ],
)
def test_a_name_is_kept_as_podman_keeps_it(name: str, stored: str) -> None:
    image = JobImage(name=name, kind="archive", source="/x.tar")

    assert (full_name(name), image.stored) == (stored, stored)
    assert ":" not in image.repository, "a registry's port is no part of a path"


def test_images_are_for_somebody_unless_nothing_runs_containers_of_jobs() -> None:
    images = cluster(job_images=[ARCHIVE]).job_images

    assert "no job can use them" in declared_images.for_nobody(images, "none", "none")
    for given in ((images, "podman", "none"), (images, "none", None), (images, "none", "podman"), ((), "none", "none")):
        assert declared_images.for_nobody(*given) == ""


def in_inventory(tmp_path: Path, entries: str) -> Any:
    (tmp_path / "inventory.ini").write_text(INI)
    (tmp_path / "group_vars").mkdir(exist_ok=True)
    (tmp_path / "group_vars" / "all.yml").write_text(f"---\njob_images:\n{entries}")
    return declared(loader.load(tmp_path / "inventory.ini"))


def tar(*names: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"hsqs" + b"\0" * 600, "squashfs"),
        (b"FROM debian\n" * 100, "no archive (tar)"),
        (tar(".dockerenv", "bin/sh"), "docker export"),
        (tar("./etc/passwd"), "docker export"),
        (tar("usr/"), "docker export"),
        (tar("blobs/", "oci-layout"), ""),
        (tar("0" * 64 + ".json", "manifest.json"), ""),
        (tar("libfoo.json"), ""),
        (b"\x1f\x8b" + b"\0" * 20, ""),
    ],
)
def test_a_file_beside_the_inventory_that_is_no_image_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "one.tar").write_bytes(data)

    assert words in archive_problem(len(data), data[:512])[0]
    if not words:
        assert in_inventory(tmp_path, "  - {name: one, archive: one.tar}\n").job_images[0].given
        return
    with pytest.raises(ClusterctlError) as refused:
        in_inventory(tmp_path, "  - {name: one, archive: one.tar}\n")
    assert f"line 3: job_images: one: {tmp_path}/one.tar: " in refused.value.problem


def pipe(path: Path, data: bytes) -> int:
    """Make a pipe with something in it, so that nobody who opens it waits."""
    os.mkfifo(path)
    held = os.open(path, os.O_RDWR)
    os.write(held, data)
    return held


@pytest.mark.parametrize("kind", ["archive", "containerfile"])
def test_a_pipe_or_directory_instead_of_a_file_is_refused_and_never_opened(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = pipe(tmp_path / "one.tar", b"\x1f\x8b" * 600)
    try:
        with pytest.raises(ClusterctlError, match=r"line 3: job_images: one: .*one.tar: it is no file"):
            in_inventory(tmp_path, f"  - {{name: one, {kind}: one.tar}}\n")
    finally:
        os.close(held)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} is opened"))
    with pytest.raises(OSError, match="it is no file"):
        declared_images.recipe(JobImage(name="one", kind="containerfile", source="one.tar"), tmp_path)


def test_a_directory_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "one.tar").mkdir()

    with pytest.raises(ClusterctlError, match="it is no file"):
        in_inventory(tmp_path, "  - {name: one, archive: one.tar}\n")


def test_a_directory_needs_a_containerfile_and_is_carried_only_while_it_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    entry = "  - {name: one, containerfile: one}\n"
    with pytest.raises(ClusterctlError, match="no Containerfile or Dockerfile"):
        in_inventory(tmp_path, entry)

    (tmp_path / "one" / "Dockerfile").write_text("FROM scratch\n")
    in_inventory(tmp_path, entry)
    monkeypatch.setattr(declared_images, "_LARGEST", 5)
    with pytest.raises(ClusterctlError, match="are carried along at most"):
        in_inventory(tmp_path, entry)


def test_another_file_mode_or_text_is_another_recipe_and_a_fresh_checkout_is_not(tmp_path: Path) -> None:
    one = JobImage(name="one", kind="containerfile", source="one")
    (tmp_path / "one" / ".git").mkdir(parents=True)
    file = tmp_path / "one" / "Containerfile"
    file.write_text("FROM scratch\n")
    first = declared_images.recipe(one, tmp_path)

    (tmp_path / "one" / ".git" / "HEAD").write_text("x")
    file.write_text("FROM scratch\n")
    assert declared_images.recipe(one, tmp_path) == first

    file.chmod(0o755)
    second = declared_images.recipe(one, tmp_path)
    (tmp_path / "one" / "run.sh").write_text("x")
    third = declared_images.recipe(one, tmp_path)
    assert len({first, second, third}) == 3


def test_what_roles_read_has_the_text_of_what_comes_with_the_inventory_and_nothing_of_the_controllers(
    tmp_path: Path,
) -> None:
    (tmp_path / "one").write_text("FROM base\n")
    images = cluster(
        job_images=[{"name": "one", "containerfile": "one"}, {"name": "two", "containerfile": "/two"}]
    ).job_images

    mine, controllers = declared_images.told(images, tmp_path)

    assert (mine["text"], mine["path"], mine["directory"]) == ("FROM base\n", str(tmp_path / "one"), False)
    assert mine["content"]
    assert (controllers["text"], controllers["path"], controllers["content"]) == ("", "", "")
