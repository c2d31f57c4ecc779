"""A small image as docker save writes it, of this computer's own shell, made without an engine."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import subprocess
import tarfile
from pathlib import Path

#: What the site's image of every lab that is provisioned is called, and its archive beside the inventory.
NAME, ARCHIVE = "site/small:1", "small.tar"
#: Older than all others: tests take the newest image of a node, which is that of the proof of training.
CREATED = "2020-01-01T00:00:00Z"
PROGRAMS = ("/bin/sh", "/bin/cat")


def write(place: Path) -> Path:
    """Write the archive into a directory and return it."""
    libraries = subprocess.run(["ldd", *PROGRAMS], capture_output=True, text=True, check=True).stdout
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in sorted({*PROGRAMS, *re.findall(r"/lib\S+(?= )", libraries)}):
            add(tar, name, Path(name).read_bytes())
        for name in ("/etc/passwd", "/etc/group"):
            add(tar, name, b"")
        add(tar, "/etc/of-the-site", b"small\n")
    files = {"layer.tar": layer.getvalue()}
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "os": "linux",
        "created": CREATED,
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(files['layer.tar']).hexdigest()}"]},
        "history": [{"created": CREATED}],
    }
    files["config.json"] = json.dumps(config).encode()
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]
    files["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(place / ARCHIVE, "w") as tar:
        for name, data in files.items():
            add(tar, name, data)
    return place / ARCHIVE


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Put a file of root's into an archive."""
    member = tarfile.TarInfo(name.lstrip("/"))
    member.size, member.mode = len(data), 0o755
    tar.addfile(member, io.BytesIO(data))
