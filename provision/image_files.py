"""From which files of this tree the cluster's own images are built."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from provision import content

#: The role that builds each image, by the image's name.
ROLES = {"slurm": "slurm_image", "ddp": "ddp_validation"}

#: What of this package Slurm's image has: users' commands lint-job and seff, without anything that is not Python's own.
COMMANDS = (
    *("__init__.py", "errors.py", "job_lint.py", "job_seff.py", "model/__init__.py", "model/slurm_json.py"),
    *("model/text.py", "slurm/__init__.py", "slurm/job_mistakes.py", "slurm/job_script.py", "slurm/job_use.py"),
)


def texts(role: str) -> dict[str, str]:
    """Return the texts of a build's files by their path in its directory, the role's ``files/image/``."""
    place = content.ROOT / "roles" / role / "files" / "image"
    package = Path(__file__).parent
    commands = {f"commands/provision/{name}": (package / name).read_text(encoding="utf-8") for name in COMMANDS}
    return (commands if role == ROLES["slurm"] else {}) | {
        str(path.relative_to(place)): path.read_text(encoding="utf-8")
        for path in sorted(place.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.parent.name != "__pycache__"
    }


def sums(files: dict[str, str]) -> dict[str, str]:
    """Return the SHA-256 of each text, by the names of the files."""
    return {name: hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest() for name, text in files.items()}


def tag(role: str) -> str:
    """Return the tag by which a shared registry has the image of this tree's files (``cluster_image`` writes it)."""
    return f"of-{hashlib.sha256(json.dumps(sums(texts(role)), sort_keys=True).encode()).hexdigest()[:16]}"
