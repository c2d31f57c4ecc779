"""Nodes that leave the cluster: the inventory's group slurm_removed, and the lines that put a host into it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from provision.errors import ClusterctlError
from provision.inventory.file import replace
from provision.inventory.loader import GROUPS
from provision.inventory.where import sections

#: Machines that are no part of the cluster any more, until ``clusterctl node remove`` has taken what is ours off them.
REMOVED = "slurm_removed"


def require_apart(groups: Mapping[str, Sequence[str]]) -> None:
    """Refuse a host that is both removed and in use.

    Raises:
        ClusterctlError: it is in the group slurm_removed and in one of ours.
    """
    for host in groups.get(REMOVED, ()):
        if used := [group for group in GROUPS if host in groups.get(group, ())]:
            raise ClusterctlError(
                f"{host} is in the groups {REMOVED} and {used[0]}",
                fix=f"remove it from one of them: under [{REMOVED}] it is no part of the cluster",
                member=(REMOVED, host),
            )


def moved(text: str, names: Collection[str]) -> str:
    """Return an INI inventory with hosts moved from the cluster's groups to [slurm_removed], each with its variables.

    Hosts stay in groups of the site's own. ``text`` comes back as it is where none of the hosts has a line.
    """
    lines = text.splitlines()
    ours, kept, taken = _ours(lines), [], dict[str, str]()
    for header, line in sections(lines):
        host = (line.split() or [""])[0]
        if header not in ours or host not in names:
            kept.append(line)
        elif len(line.split()) > 1 or host not in taken:
            taken[host] = line
    if not taken:
        return text
    if f"[{REMOVED}]" not in (line.strip() for line in kept):
        kept += ["", f"[{REMOVED}]"]
    at = 1 + [line.strip() for line in kept].index(f"[{REMOVED}]")
    return "\n".join([*kept[:at], *taken.values(), *kept[at:]]) + "\n"


def move(path: Path, names: Collection[str]) -> dict[Path, str]:
    """Move hosts to [slurm_removed] in the inventory's INI files; return the files' texts of before, to be put back.

    Raises:
        ClusterctlError: a host has no line of its own in them; nothing was written.
    """
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    before = {file: file.read_text(encoding="utf-8") for file in files if file.is_file() and not _is_yaml(file)}
    after = {file: moved(text, names) for file, text in before.items()}
    found = {line.split()[0] for text in after.values() for line in _below(text.splitlines(), {REMOVED})}
    if missing := [name for name in names if name not in found]:
        raise ClusterctlError(
            f"{path} has no line for {missing[0]} that could be moved to [{REMOVED}]",
            fix=f"write {missing[0]} under [{REMOVED}] and out of [slurm_compute] (node[1:4] becomes node[1:3]), "
            "then run this again",
        )
    changed = {file: text for file, text in before.items() if after[file] != text}
    write({file: after[file] for file in changed})
    return changed


def write(texts: Mapping[Path, str]) -> None:
    """Write files, each replaced in one step.

    Raises:
        ClusterctlError: one cannot be written.
    """
    for file, text in texts.items():
        try:
            replace(file, text)
        except OSError as error:
            raise ClusterctlError(
                f"{file} cannot be written: {error.strerror}", fix="free it, then try again"
            ) from None


def _ours(lines: Sequence[str]) -> set[str]:
    """Return the groups whose hosts belong to the cluster: ours, and those that are their children."""
    ours, before = set(GROUPS), 0
    while len(ours) != before:
        before = len(ours)
        ours |= {line.split()[0] for line in _below(lines, {f"{group}:children" for group in ours})}
    return ours


def _below(lines: Iterable[str], headers: Collection[str]) -> list[str]:
    """Return the lines with something in them below these headers of sections."""
    return [
        line for header, line in sections(lines) if header in headers and line.strip() and line.lstrip()[0] not in "#;["
    ]


def _is_yaml(file: Path) -> bool:
    return file.suffix in (".yml", ".yaml", ".json") or file.name.startswith(".")
