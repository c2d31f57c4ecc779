# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door to the programs of this role, also where no role is run and ``lookup`` finds no file of it."""

from __future__ import annotations

from importlib.util import find_spec

from provision import content

#: Where systemd looks for the unit of a program.
UNIT = "/etc/systemd/system/clusterctl-{}.service"


def machine_metrics_file(name):
    """Return the text of one of the role's files."""
    return (content.ROOT / "roles/machine_metrics/files" / name).read_text(encoding="utf-8")


def machine_metrics_module(name):
    """Return the path of a module of Python that clusterctl was installed with."""
    if (spec := find_spec(name)) is None or spec.origin is None:
        raise ValueError(f"clusterctl was installed without the module {name}. Fix: install it again (make venv)")
    return spec.origin


def machine_metrics_files(programs, directory):
    """Return the programs and their units, as the role manages them."""
    return [
        file
        for name in programs
        for file in (
            {"path": f"{directory}/{name}", "file": name, "mode": "0755"},
            {"path": UNIT.format(name), "template": f"{name}.service.j2"},
        )
    ]


def machine_metrics_services(programs, directory, modules):
    """Return the programs' services. Each is restarted for its program, its unit and the modules."""
    own = [module["path"] for module in modules]
    return [
        {
            "name": f"clusterctl-{name}",
            "units": [UNIT.format(name)],
            "started_after": [f"{directory}/{name}", UNIT.format(name), *(own if name == "node-metrics" else [])],
        }
        for name in programs
    ]


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "machine_metrics_file": machine_metrics_file,
            "machine_metrics_files": machine_metrics_files,
            "machine_metrics_module": machine_metrics_module,
            "machine_metrics_services": machine_metrics_services,
        }
