"""What the logs of a broken DDP job say about why, and the way out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: What logs say, why, and the way out; the first that fits counts. Each pattern has a fixture in the tests.
LOG_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"Unable to resolve hostname to a \(local\) address|resolves to 127\.|connectFullMesh failed.*\b127\.\d+\.",
        "a node's own name resolves to the loopback address, so others cannot connect to it",
        "remove the 127.0.1.1 line from /etc/hosts: clusterctl provision INVENTORY base",
    ),
    (
        r"connectFullMesh failed.*[Rr]efused",
        "a connection between two nodes was refused: a firewall rejects it, or a name leads to the wrong address",
        "getent hosts NODE on both nodes; open TCP between the compute nodes, all ports, both directions",
    ),
    (
        r"connectFullMesh failed|[Tt]imed out.*connecting|Connection timed out|No route to host",
        "two nodes could not connect to each other: a firewall between them drops the ports that jobs use",
        "open TCP between the compute nodes, all ports, both directions",
    ),
    (
        r"Task launch .*Communication connection failure",
        "the first node of the job could not connect to another node's slurmd: a firewall or a route between the two",
        "on the first node: nc -vz NODE 6818; open TCP between the compute nodes, all ports, both directions",
    ),
    (
        r"EADDRINUSE|[Aa]ddress already in use",
        "the rendezvous port is taken by another program on the first node",
        "find it with 'ss -ltnp' on the first node of the job, end it, verify again",
    ),
    (
        r"client socket has timed out|connection to the C10d store has failed|DistNetworkError",
        "a node could not reach the rendezvous on the first node: a firewall, or the first node's container never ran",
        "read node.log of the first node; open TCP between the nodes",
    ),
    (
        r"Name or service not known|Temporary failure in name resolution|gai error",
        "a node's name does not resolve inside the job",
        "clusterctl provision INVENTORY base",
    ),
    (
        r"image not known|no such image|manifest unknown|unable to find.*image",
        "the job's image is not in this node's image store",
        "clusterctl provision INVENTORY slurm",
    ),
    (r"No space left on device", "a file system of this node is full", "free space on the named node"),
    (
        r"oom_kill|Out Of Memory|OutOfMemoryError|out of memory",
        "the memory granted to the job, or the GPU's, was not enough",
        "look at what else uses the memory of the named node",
    ),
    (
        r"invalid device ordinal",
        "the job's container has fewer GPUs than Slurm granted there",
        "on the named node: nvidia-smi -L, nvidia-ctk cdi list; clusterctl provision INVENTORY gpu",
    ),
    (
        r"No CUDA GPUs are available",
        "CUDA found no GPU in the job's container",
        "on the named node: nvidia-smi -L, nvidia-ctk cdi list; clusterctl provision INVENTORY gpu",
    ),
    (
        r"Unable to create step",
        "Slurm would not start the step in its own allocation",
        "look at 'scontrol show job' and the batch log",
    ),
)

#: What PyTorch says behind each error of CUDA (c10/cuda/CUDAException.cpp, CUDAMiscFunctions.cpp): advice for who
#: writes kernels. The error is named before it.
_ADVICE = (
    r"(Search for `cuda|CUDA kernel errors might be asynchronously|For debugging consider passing CUDA_LAUNCH_BLOCKING"
    r"|Compile with `TORCH_USE_CUDA_DSA`|Device-side assertion tracking was not enabled)"
)

#: Lines at a log's end that hide what was said before them: stacks of C++, rules, and where there is no file.
_NOISE = re.compile(
    r"^\s*(frame #\d+|[=-]+)|^(\[rank\d+\]:)?\s*$|error_file: <N/A>|traceback : To enable"
    rf"|^[WE]\d{{4}} .*torch/distributed/elastic|^(\[rank\d+\]: *)?{_ADVICE}"
)


def cause_in(logs: Iterable[Sequence[str]]) -> tuple[str, str]:
    """Return (cause, fix) of the first log that has a line we know; empty texts where none has."""
    for log in logs:
        for pattern, cause, fix in LOG_CAUSES:
            if any(re.search(pattern, line) for line in log):
                return cause, fix
    return "", ""


def without_advice(text: str) -> str:
    """Return an error's text, on one line, up to CUDA's advice for debugging."""
    return re.split(_ADVICE, text, maxsplit=1)[0].rstrip()


def last_words(logs: Iterable[Sequence[str]]) -> str:
    """Return the last lines of the first log that has any, without those that say nothing."""
    log = next((log for log in logs if log), ())
    return " | ".join([line for line in log if not _NOISE.search(line)][-4:])
