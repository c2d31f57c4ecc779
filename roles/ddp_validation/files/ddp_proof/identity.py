# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""A: who takes part."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import Counter

import torch

from ddp_proof.job import Job, Outcome, outcome
from ddp_proof.release import own
from ddp_proof.suspects import odd_ones

# Settings that are left over from debugging more often than wanted: they switch the fast paths off.
LEFTOVERS = ("NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NET_GDR_DISABLE")


def bare(uuid: str) -> str:
    """Return a GPU's UUID without its kind: torch and nvidia-smi do not agree on GPU- and MIG-."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-")


def differences(values: list[dict[str, str]]) -> str:
    """Return what differs between equal sets of names, with all values: ``torch 2.6.0, 2.7.1``."""
    names = sorted({name for value in values for name in value})
    seen = {name: list(dict.fromkeys(value.get(name, "none") for value in values)) for name in names}
    return "; ".join(f"{name} {', '.join(found[:4])}" for name, found in seen.items() if len(found) > 1)


def gpu_identity(job: Job) -> dict[str, str]:
    """Return the UUID of this rank's GPU; for simulated ones, machine and number."""
    if job.device.type == "cuda":
        properties = torch.cuda.get_device_properties(job.device)
        uuid = str(getattr(properties, "uuid", ""))
        if not uuid:  # torch before 2.4 does not tell; nvidia-smi lists in PCI order, as CUDA_DEVICE_ORDER is set to
            listed = subprocess.run(
                ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=True
            ).stdout.split()
            uuid = listed[torch.cuda.current_device()]
        return {"gpu": bare(uuid), "gpu_name": properties.name}
    if "gpu" in job.simulated:
        granted = [number for number in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if number]
        own = f"simulated:{job.args.node}:{granted[job.local_rank]}" if job.local_rank < len(granted) else ""
        return {"gpu": own, "gpu_name": "simulated"}
    return {"gpu": "", "gpu_name": ""}


def identity(job: Job) -> Outcome:
    """A: who takes part. One rank per granted GPU, all GPUs distinct, the same software and settings everywhere."""
    settings = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(("NCCL_", "TORCH_", "GLOO_")) and not name.endswith(("SOCKET_IFNAME", "DEBUG_FILE"))
    }
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if job.device.type == "cuda" else "none"
    versions = {"python": platform.python_version(), "torch": torch.__version__, "nccl": nccl, "image": job.args.image}
    versions["program"] = own()
    if job.sabotaged("odd_version"):
        versions["torch"] += "+other"
    me = {
        "rank": job.rank,
        "local_rank": job.local_rank,
        "node": job.args.node,
        "device": job.device.type,
        "granted": job.args.granted,
        "versions": versions,
        "settings": settings,
        **gpu_identity(job),
    }
    job.record.update(identity=me)
    everyone = job.gather("identity", me)
    job.hosts = [who["node"] for who in everyone]
    wanted = dict(pair.split("=") for pair in job.args.expect.split(","))
    found = Counter(job.hosts)
    guilty = [
        {"rank": None, "node": node, "parameter": "", "detail": f"{found[node]} ranks, expected {wanted.get(node, 0)}"}
        for node in sorted(set(wanted) | set(found))
        if found[node] != int(wanted.get(node, 0))
    ]
    device = "cpu" if "gpu" in job.simulated else job.args.device
    guilty += [
        job.guilty(who["rank"], f"works on {who['device']}, not on {device}: torch sees no usable GPU in the container")
        for who in everyone
        if who["device"] != device
    ]
    guilty += [
        job.guilty(who["rank"], "no GPU was granted for it")
        for who in everyone
        if not who["gpu"] and who["device"] == device and (device == "cuda" or "gpu" in job.simulated)
    ]
    holders = Counter(who["gpu"] for who in everyone if who["gpu"])
    guilty += [job.guilty(who["rank"], f"shares {who['gpu']}") for who in everyone if holders[who["gpu"]] > 1]
    guilty += [
        job.guilty(who["rank"], f"uses {who['gpu']}, which Slurm did not grant to this job")
        for who in everyone
        if who["granted"] and who["gpu"] and who["gpu"] not in [bare(uuid) for uuid in who["granted"].split(",")]
    ]
    split = []
    for subject in ("versions", "settings"):
        ranks, tie = odd_ones([json.dumps(who[subject]) for who in everyone])
        if tie:
            split.append(job.split(ranks, f"{subject}: {differences([who[subject] for who in everyone])}"))
        else:
            guilty += [job.guilty(rank, f"{subject} differ: {json.dumps(everyone[rank][subject])}") for rank in ranks]
    nodes = ", ".join(f"{node} {count}" for node, count in sorted(found.items()))
    leftovers = sorted({name for who in everyone for name in who["settings"] if name in LEFTOVERS})
    verdict = "fail" if guilty or split else "warn" if leftovers else "pass"
    simulated = "simulated " if "gpu" in job.simulated else ""
    said = (
        f"{job.world} ranks ({nodes}), {len(holders)} distinct {simulated}GPUs, torch {torch.__version__} on {device}"
    )
    return outcome(
        verdict,
        said + (f"; left from debugging: {', '.join(leftovers)}" if leftovers else ""),
        f"{sum(map(int, wanted.values()))} ranks on {len(wanted)} nodes, one {device} device each, alike",
        guilty=guilty,
        split="; ".join(split),
        ranks=everyone,
    )
