"""What a role manages is written from its data by one task, as its judge would compare it, by the real Ansible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible_runs import run

from provision import content
from provision.events.fold import RunReport

#: Stands for a module that would change this computer, and notes what it was asked.
NOTES = """\
#!/usr/bin/python3
# WANT_JSON
import json, pathlib, sys
asked = json.load(open(sys.argv[1]))
with pathlib.Path({log!r}).open("a") as log:
    log.write(json.dumps({{key: value for key, value in asked.items() if key[0] != "_"}}) + chr(10))
print(json.dumps({{"changed": True}}))
"""

PLAYBOOK = """\
- name: Try
  hosts: slurm_controller
  gather_facts: false
  vars:
    base_system_time_servers: [time.example.org, 10.0.0.1]
    here: "{{ inventory_dir }}/d"
    __base_system_early_places:
      directories:
        - {path: "{{ here }}", mode: "0750"}
      files: "{{ what_is_not_known_yet }}"
    __base_system_managed:
      packages: [chrony]
      files:
        - {path: "{{ here }}/managed", template: time.sources.j2}
        - {path: "{{ here }}/secret", content: "{{ 'secret' ~ '-word' }}", mode: "0600", secret: true}
        - {path: "{{ here }}/silent", content: null}
        - {path: "{{ here }}/elsewhere", template: time.sources.j2, when: "{{ 1 > 2 }}"}
      absent: ["{{ here }}/gone"]
      services:
        - {name: chrony, started_after: [/a], units: [/b], restart: nobody minds}
      containers: "{{ what_is_not_known_yet }}"
  tasks:
    - name: Make the directory
      managed: {role: base_system, part: early_places, kinds: [directories]}
    - name: Write all
      managed: {role: base_system}
    - name: Install and run
      managed: {role: base_system, kinds: [services, packages]}
    - name: Install what is there
      managed: {role: base_system, kinds: [packages]}
      vars:
        cluster_packages_here: [chrony, another]
    - name: Write with Ansible's own
      ansible.builtin.template:
        src: TEMPLATE
        dest: "{{ inventory_dir }}/stock"
        mode: "0644"
"""


class Managed(NamedTuple):
    """A run of the tasks above, and where they wrote."""

    report: RunReport
    record: Path
    directory: Path

    def changed(self) -> list[str]:
        return [task.name for task in self.report.changes]

    def asked(self, module: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / f"{module}.log").read_text().splitlines()]


def managed(directory: Path, **options: Any) -> Managed:
    template = content.ROOT / "roles/base_system/templates/time.sources.j2"
    (directory / "try.yml").write_text(PLAYBOOK.replace("TEMPLATE", str(template)), encoding="utf-8")
    (directory / "library").mkdir(exist_ok=True)
    for module in ("apt", "service_current"):
        text = NOTES.format(log=str(directory / f"{module}.log"))
        (directory / f"library/{module}.py").write_text(text, encoding="utf-8")
    report, record = run(directory / "try.yml", **options)
    return Managed(report, record.directory, directory)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Managed:
    directory = tmp_path_factory.mktemp("managed")
    (directory / "d/gone").mkdir(parents=True)
    # What Ansible says of a module's arguments, it says only where it is asked for all that it has to say.
    return managed(directory, diff=True, verbosity=3)


def test_what_is_known_and_wanted_here_is_written_as_ansibles_own_modules_would(first: Managed) -> None:
    assert not first.report.failed_hosts
    assert sorted(path.name for path in (first.directory / "d").iterdir()) == ["managed", "secret"]
    assert (first.directory / "d/managed").read_text() == (first.directory / "stock").read_text()
    assert (first.directory / "d/secret").read_text() == "secret-word"
    assert (first.directory / "d").stat().st_mode & 0o7777 == 0o750


def test_packages_are_installed_where_one_is_missing_and_services_go_by_their_files(first: Managed) -> None:
    assert [one["name"] for one in first.asked("apt")] == [["chrony"]]
    assert first.asked("service_current") == [{"name": "chrony", "files": ["/a"], "units": ["/b"]}]


def test_the_difference_of_a_file_is_told_and_a_secret_is_in_no_record(first: Managed) -> None:
    told = {diff.path for diff in first.report.diffs}
    assert str(first.directory / "d/managed") in told
    assert str(first.directory / "d/secret") not in told
    records = [path for path in first.record.rglob("*") if path.is_file()]
    assert any(b"time.example.org" in path.read_bytes() for path in records)
    assert [path for path in records if b"secret-word" in path.read_bytes()] == []


def test_a_second_run_writes_nothing(first: Managed) -> None:
    assert first.changed() == ["Make the directory", "Write all", "Install and run", "Write with Ansible's own"]

    assert managed(first.directory).changed() == ["Install and run"]
