"""From which files of this tree the cluster's own images are built."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from provision import content

#: The role that builds each image, by the image's name.
ROLES = {"slurm": "slurm_image", "ddp": "ddp_validation"}
#: Packages of this project that an image has besides its role's files, by the directory that they come to.
PACKAGES = {"slurm_image": {"lint-job": "provision.slurm.jobs"}}


def texts(role: str) -> dict[str, str]:
    """Return the texts of a build's files by their path in its directory: the role's ``files/image/``, and packages."""
    place = content.ROOT / "roles" / role / "files" / "image"
    found = {
        str(path.relative_to(place)): path.read_text(encoding="utf-8")
        for path in sorted(place.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.parent.name != "__pycache__"
    }
    for directory, name in PACKAGES.get(role, {}).items():
        found |= {f"{directory}/{path}": text for path, text in _package(name).items()}
    return found


def sums(files: dict[str, str]) -> dict[str, str]:
    """Return the SHA-256 of each text, by the names of the files."""
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}


def tag(role: str) -> str:
    """Return the tag by which a shared registry has the image of this tree's files (``cluster_image`` writes it)."""
    return f"of-{hashlib.sha256(json.dumps(sums(texts(role)), sort_keys=True).encode()).hexdigest()[:16]}"


def _package(name: str) -> dict[str, str]:
    """Return the texts of a package of this project, and of those that it is in, by their path."""
    parents = name.split(".")
    places = [content.PACKAGE.joinpath(*parents[1:count]) / "__init__.py" for count in range(1, len(parents))]
    places += sorted(content.PACKAGE.joinpath(*parents[1:]).glob("*.py"))
    root: Path = content.PACKAGE.parent
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in places}
