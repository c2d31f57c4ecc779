# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into provision.judge.ddp. Translation only."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import PurePath

from provision.judge import jobs
from provision.judge.ddp import checks
from provision.judge.ddp_evidence import Wants, documents, evidence_from
from provision.judge.ddp_plan import Job, Plan, divided, plan
from provision.model.gres import gpus
from provision.rdma.expected import unused_in


def ddp_ranks(hosts, hostvars, without):
    """Return the ranks of each host: one per declared GPU, or ``without`` where it declares none."""
    return {str(host): gpus(hostvars[host].get("node_gres")) or int(without) for host in hosts}


def ddp_expect(ranks, hosts):
    """Return the ranks of these hosts as the program reads them: node1=2,node2=2."""
    return ",".join(f"{host}={ranks[host]}" for host in hosts)


def ddp_plan(sinfo, ranks, hostvars, scope, partition):
    """Return which jobs prove which nodes, as plain data; ``arguments`` is what ddp_submit.py takes."""
    declared = {host: hostvars[host] for host in ranks}
    found = plan(
        str(sinfo),
        {str(host): int(count) for host, count in ranks.items()},
        {str(host): gpus(told.get("node_gres")) for host, told in declared.items()},
        mig=[str(host) for host, told in declared.items() if divided(told.get("node_gres"), told.get("node_mig"))],
        scope=[str(host) for host in scope],
        partition=str(partition),
        unfit={str(host): why for host, told in declared.items() if (why := _unfit(str(host), told))},
    )
    return {**asdict(found), "arguments": json.dumps([job.as_dict() for job in found.jobs])}


def ddp_runs(planned, said):
    """Return run and job of each node, from what ddp_submit.py printed."""
    told = documents(str(said))
    runs = zip(planned["jobs"], told, strict=False)
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


def ddp_checks(planned, job, hostvars, simulated, directory, required, release):
    """Return the checks, from the plan and the submission's and collectors' registered results."""
    submitted = [Job(**one) for one in planned["jobs"]]
    left_out = {key: planned[key] for key in ("busy", "apart", "out", "silent")}
    told = documents(str(job.get("stdout") or ""))
    complaint = str(job.get("stderr") or job.get("msg") or "")
    evidence = []
    for number, one in enumerate(submitted):
        left = {node: str(hostvars[node].get("__ddp_validation_left", {}).get("stdout", "")) for node in one.ranks}
        evidence.append(
            evidence_from(
                told[number] if number < len(told) else None,
                complaint,
                left,
                Wants(
                    dict(one.ranks),
                    one.gpus,
                    [str(word) for word in simulated],
                    bool(required),
                    {node: unused_in(hostvars[node].get("node_rdma_unused")) for node in one.ranks},
                    str(release),
                ),
                {node: _rdma(hostvars[node]) for node in one.ranks},
                str(directory),
            )
        )
    return [check.as_dict() for check in checks(Plan(submitted, **left_out), evidence)]


def _unfit(host, variables):
    """Return why a host can run no job, by what became of its own in this run; empty where none was tried."""
    planned = variables.get("__slurm_service_plan", {}).get("nodes", {}).get(host, {})
    return jobs.unfit(planned, str(variables.get("__slurm_service_jobs", {}).get("stdout") or ""), host)


def _rdma(variables):
    """Return what the roles for RDMA have found on a host in this run; None where they did not run."""
    for name in ("__gpudirect_rdma_found", "__rdma_userspace_seen"):
        found = variables.get(name, {}).get("machine", {})
        if "rdma" in found:
            return found["rdma"]
    return None


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "ddp_ranks": ddp_ranks,
            "ddp_expect": ddp_expect,
            "ddp_plan": ddp_plan,
            "ddp_release": ddp_release,
            "ddp_runs": ddp_runs,
            "ddp_checks": ddp_checks,
        }
