"""The support matrix: which system runs what, from what tests have really run.

A test that passes and carries ``@pytest.mark.proves(row)`` is noted in .cache/support below the checkout, with the
system of the machines that it ran on; ``on="Ubuntu 24.04"`` in the marker says that no machine of that system was there
and that only what would be done on one was compared. ``make support`` takes these notes over into ran.yml, which is
committed, and writes the table into docs/support.md. A test compares the two.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RAN = HERE / "ran.yml"
NOTES = ROOT / ".cache" / "support"
PAGE = ROOT / "docs" / "support.md"
BEGIN, END = "<!-- support matrix: begin -->", "<!-- support matrix: end -->"

#: How something can have been tried, strongest first, with the word that the table uses.
KINDS = {"vm": "virtual machines", "container": "container machines", "rendered": "rendered only"}

#: {row: {system: {kind: {"on": date, "by": [tests]}}}}
Record = dict[str, dict[str, dict[str, dict[str, Any]]]]


class _Dumper(yaml.SafeDumper):
    """Lists are indented below their key, as yamllint wants them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def note(row: str, system: str, kind: str, test: str) -> None:
    """Remember in the cache that a test has passed."""
    NOTES.mkdir(parents=True, exist_ok=True)
    entry = {"row": row, "system": system, "kind": kind, "test": test, "on": datetime.date.today().isoformat()}
    with (NOTES / "notes.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def system_of(os_release: str) -> str:
    """Return the column for a machine, such as ``Debian 12``, from its /etc/os-release."""
    values = dict(line.partition("=")[::2] for line in os_release.splitlines() if "=" in line)
    name, version = values.get("ID", "").strip('"'), values.get("VERSION_ID", "").strip('"')
    return f"{name.capitalize()} {version}"


def matrix() -> dict[str, Any]:
    """Return matrix.yml."""
    loaded: dict[str, Any] = yaml.safe_load((HERE / "matrix.yml").read_text(encoding="utf-8"))
    return loaded


def ran() -> Record:
    """Return ran.yml; nothing where there is none yet."""
    return (yaml.safe_load(RAN.read_text(encoding="utf-8")) if RAN.exists() else None) or {}


def merged(record: Record, notes: list[dict[str, str]]) -> Record:
    """Return the record with the notes in it: of each cell's kind, the latest day and the tests of that day."""
    for entry in sorted(notes, key=lambda each: each["on"]):
        kinds = record.setdefault(entry["row"], {}).setdefault(entry["system"], {})
        told = kinds.setdefault(entry["kind"], {"on": entry["on"], "by": []})
        if told["on"] < entry["on"]:
            told.update(on=entry["on"], by=[])
        told["by"] = sorted({*told["by"], entry["test"]})
    return record


def table(record: Record) -> str:
    """Return the matrix as a table in Markdown."""
    shape = matrix()
    lines = [f"| What | {' | '.join(shape['systems'])} |", "| --- |" + " --- |" * len(shape["systems"])]
    for row, about in shape["rows"].items():
        cells = (_cell(record.get(row, {}).get(system, {})) for system in shape["systems"])
        lines.append(f"| {about['does']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(kinds: dict[str, Any]) -> str:
    ran_on = [word for kind, word in KINDS.items() if kind in kinds and kind != "rendered"]
    return ", ".join(ran_on) or ("*not run*; rendered" if "rendered" in kinds else "*not run*")


def on_page() -> str:
    """Return the table that docs/support.md has."""
    return PAGE.read_text(encoding="utf-8").split(BEGIN, 1)[1].split(END, 1)[0].strip()


def _notes() -> Iterator[dict[str, str]]:
    if (path := NOTES / "notes.jsonl").exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def _molecule(scenarios: list[str]) -> None:
    """Note scenarios that have passed; without names all, because Molecule stops at the first that fails."""
    images = ["docker", "image", "ls", "--filter", "label=clusterctl.suite=default", "--format", "{{.ID}}"]
    image = subprocess.run(images, capture_output=True, text=True, check=True).stdout.split()[0]
    release = ["docker", "run", "--rm", "--entrypoint", "cat", image, "/etc/os-release"]
    system = system_of(subprocess.run(release, capture_output=True, text=True, check=True).stdout)
    for row, about in matrix()["rows"].items():
        for scenario in about.get("molecule", []):
            is_there = (ROOT / "molecule" / scenario / "molecule.yml").is_file()
            if is_there and scenario in (scenarios or [scenario]):
                note(row, system, "container", f"molecule/{scenario}")


def main() -> None:
    """Take over the notes and write the table; with ``molecule``, note that all scenarios, or those named, passed."""
    if sys.argv[1:2] == ["molecule"]:
        _molecule(sys.argv[2:])
        return
    record = merged(ran(), list(_notes()))
    head = "---\n# yamllint disable rule:line-length\n# What tests have run. Written by 'make support'.\n"
    RAN.write_text(head + yaml.dump(record, Dumper=_Dumper, width=160), encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(record)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
