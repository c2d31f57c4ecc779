# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into provision.judge.ddp. Translation only."""

from __future__ import annotations

import hashlib
from pathlib import PurePath

from provision.judge.ddp_evidence import documents


def ddp_expect(ranks, hosts):
    """Return the ranks of these hosts as the program reads them: node1=2,node2=2."""
    return ",".join(f"{host}={ranks[host]}" for host in hosts)


def ddp_runs(planned, said):
    """Return run and job of each node, from what ddp_submit.py printed."""
    told = documents(str(said))
    runs = zip(planned.get("jobs") or (), told, strict=False)
    return {
        node: [str(document.get("run_id")), str(document.get("id"))]
        for job, document in runs
        if isinstance(document, dict) and document.get("id")
        for node in job["ranks"]
    }


def ddp_release(paths, texts):
    """Return the digest of the program's modules, as ddp_proof/release.py makes it; a path is ddp_proof/NAME.py."""
    whole = hashlib.sha256()
    for name, text in sorted((PurePath(str(path)).stem, str(text)) for path, text in zip(paths, texts, strict=True)):
        whole.update(f"{name}\0{text}\0".encode())
    return whole.hexdigest()[:32]


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "ddp_expect": ddp_expect,
            "ddp_release": ddp_release,
            "ddp_runs": ddp_runs,
        }
