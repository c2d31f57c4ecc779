"""Mistakes of NCCL's settings: docs.nvidia.com, NCCL's environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.slurm.jobs.finding import Told, assigned, distributed, nodes, steps
from provision.slurm.jobs.script import Script

#: Settings that are a machine's own, with what finds them.
_OF_A_MACHINE = {
    "NCCL_SOCKET_IFNAME": "NCCL finds the interface; to leave some out: NCCL_SOCKET_IFNAME=^lo,docker0",
    "GLOO_SOCKET_IFNAME": "leave it out, or ask each node: ip -o route get $MASTER_ADDR",
    "NCCL_IB_HCA": "NCCL finds the adapters; to leave one out: NCCL_IB_HCA=^mlx5_2",
    "UCX_NET_DEVICES": "leave it out: UCX finds the adapters",
    "NCCL_IB_GID_INDEX": "leave it out: NCCL finds the RoCE v2 index itself since 2.21",
}
#: What switches a fast way off, and the values that do.
_SWITCHES = {
    "NCCL_IB_DISABLE": ("1", "no RDMA: all data goes by TCP"),
    "NCCL_P2P_DISABLE": ("1", "GPUs of a node talk through its memory, not by NVLink"),
    "NCCL_P2P_LEVEL": ("0 LOC", "GPUs of a node talk through its memory, not by NVLink"),
    "NCCL_NET": ("Socket socket", "no RDMA: all data goes by TCP"),
    "NCCL_SHM_DISABLE": ("1", "processes of a node talk by the network"),
    "NCCL_NET_GDR_LEVEL": ("0 LOC", "no GPUDirect RDMA: adapters do not reach the GPUs' memory"),
    "NCCL_NET_GDR_READ": ("0", "sent data goes through the machine's memory"),
    "NCCL_CROSS_NIC": ("0", "one adapter where several would do"),
    "CUDA_LAUNCH_BLOCKING": ("1", "every kernel is waited for"),
    "TORCH_DISTRIBUTED_DEBUG": (
        "DETAIL detail",
        "every collective is checked against the others, several times slower",
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("1", "each tensor asks the driver for its memory"),
    "NCCL_ALGO": ("Ring Tree RING TREE", "NCCL no longer takes the fastest for each size"),
    "NCCL_PROTO": ("Simple LL SIMPLE", "NCCL no longer takes the fastest for each size"),
}


def baked_nccl(script: Script) -> Iterator[Told]:
    """A setting that is right on the machine where it was written."""
    for line, name, value in assigned(script, *_OF_A_MACHINE):
        # A prefix (mlx5) fits every machine that has such adapters.
        prefix = name == "NCCL_IB_HCA" and "_" not in value
        if value and not value.startswith(("^", "$")) and not prefix:
            effect = "on a machine that calls it otherwise, NCCL finds no network, or a slower one"
            yield line, f"{name}={value}", effect, _OF_A_MACHINE[name]


def left_from_debugging(script: Script) -> Iterator[Told]:
    """A switch that was set to look for a fault, and makes every job slow since."""
    for line, name, value in assigned(script, *_SWITCHES):
        values, effect = _SWITCHES[name]
        if value in values.split():
            yield line, f"{name}={value}", effect, f"leave {name} out"


def one_nccl_log(script: Script) -> Iterator[Told]:
    """NCCL's messages of all ranks in one stream."""
    if not (distributed(script) or nodes(script) > 1 or not script.batch):
        return
    files = [(line, value) for line, _, value in assigned(script, "NCCL_DEBUG_FILE")]
    better = "export NCCL_DEBUG_FILE=nccl-%h-%p.log"
    outputs = [call.options.get("output") for call in steps(script)]
    apart = bool(outputs) and all(one and re.search(r"%\d*t", one.value) for one in outputs)
    for line, value in files:
        if value and not ("%h" in value and "%p" in value):
            yield line, f"NCCL_DEBUG_FILE={value} is one file for all", "ranks write over each other's lines", better
    for line, _, value in assigned(script, "NCCL_DEBUG"):
        if value.upper() in ("INFO", "TRACE") and not files and not apart:
            effect = "hundreds of lines of each rank, mixed: the one that matters is not found"
            yield line, f"NCCL_DEBUG={value} into the job's output", effect, better
