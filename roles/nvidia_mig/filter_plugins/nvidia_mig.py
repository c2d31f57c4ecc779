# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into provision.nvidia.mig and provision.judge.mig. Translation only."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError

from provision.judge import mig as judge
from provision.model import gres
from provision.nvidia import mig


def nvidia_mig_items(value):
    """Return the items of a layout, however it is written."""
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else list(value or ())


def nvidia_mig_layout(value):
    """Return the profiles of each GPU that a layout names, keys as JSON wants them."""
    try:
        return {
            str(gpu): list(profiles)
            for gpu, profiles in mig.layout(str(item) for item in nvidia_mig_items(value)).items()
        }
    except ValueError as error:
        raise AnsibleFilterError(f"node_mig: {error}\nFix: write it as node_mig=0-7:1g.10gb*7") from None


def nvidia_mig_checks(answer, layout, devices, by_files):
    """Return the checks of one machine from the finished ``nvidia-smi mig -lci``."""
    declared, recorded = ([str(item) for item in nvidia_mig_items(value)] for value in (layout, devices))
    found = judge.checks(declared, recorded, dict(answer), by_files=bool(by_files))
    return [check.as_dict() for check in found]


def nvidia_mig_gpus(value):
    """Return the GPUs of a node_gres, one item a kind: ["gpu:1g.5gb:4"]."""
    try:
        kinds = gres.counts(one for one in gres.parse(value or ()) if one.name == "gpu")
    except ValueError as error:
        raise AnsibleFilterError(f"node_gres: {error}") from None
    return [f"{kind}:{count}" for kind, count in kinds.items()]


class FilterModule:
    """Filters of the role nvidia_mig."""

    def filters(self):
        """Return the filters by name."""
        return {
            "nvidia_mig_gpus": nvidia_mig_gpus,
            "nvidia_mig_items": nvidia_mig_items,
            "nvidia_mig_layout": nvidia_mig_layout,
            "nvidia_mig_checks": nvidia_mig_checks,
        }
