"""Where the playbooks and roles are: beside the package in a checkout, inside it when installed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

#: Directory of the package itself.
PACKAGE = Path(__file__).resolve().parent
_INSTALLED = PACKAGE / "_content"

#: Directory that holds ansible.cfg, playbooks/, roles/, plugins/ and inventory/.
ROOT = _INSTALLED if _INSTALLED.is_dir() else PACKAGE.parent

#: Playbooks that stages import: what they do is part of the stage.
PARTS = ("observe", "prove")


def playbook(name: str) -> Path:
    """Return the path of ``playbooks/<name>.yml``; its existence is the caller's claim."""
    return ROOT / "playbooks" / f"{name}.yml"


@cache
def stages() -> tuple[str, ...]:
    """Return the stages of a provision run, in the order in which ``playbooks/site.yml`` imports them."""
    plays = yaml.safe_load(playbook("site").read_text(encoding="utf-8"))
    return tuple(Path(play["ansible.builtin.import_playbook"]).stem for play in plays)
