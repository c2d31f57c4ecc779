# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""All steps in order, from the command line to the result."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

# Loaded here, before there is a group: what optimizers load later would keep the group as a default of its functions.
import torch.distributed.nn

from ddp_proof.collectives import collectives
from ddp_proof.gradients import broadcast, gradients, negative_control
from ddp_proof.identity import identity
from ddp_proof.job import Job, Outcome, outcome
from ddp_proof.measures import learning, speed
from ddp_proof.record import Record, write_json
from ddp_proof.reference import reference
from ddp_proof.release import own
from ddp_proof.training import parameters

STEPS: dict[str, Callable[[Job], Outcome]] = {
    "identity": identity,
    "collectives": collectives,
    "broadcast": broadcast,
    "gradients": gradients,
    "negative_control": negative_control,
    "parameters": parameters,
    "reference": reference,
    "learning": learning,
    "speed": speed,
}


def bind_gloo(master: str) -> None:
    """Bind gloo to the network card that leads to the other nodes.

    Left alone, gloo takes whatever address the machine's own name resolves to, and tells its peers to connect there;
    where that is 127.0.1.1 (Debian's habit) every connection between nodes fails.

    Raises:
        RuntimeError: the rendezvous host's name resolves to the loopback address although the job has several nodes.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ or os.environ["WORLD_SIZE"] == os.environ["LOCAL_WORLD_SIZE"]:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, 9))  # asks the routing table; nothing is sent
        own = probe.getsockname()[0]
        if own.startswith("127."):
            raise RuntimeError(f"{master} resolves to {own} here: other nodes cannot connect to it; fix /etc/hosts")
        for _, card in socket.if_nameindex():
            with contextlib.suppress(OSError):  # a card without an IPv4 address
                answer = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", card.encode()[:15]))  # SIOCGIFADDR
                if socket.inet_ntoa(answer[20:24]) == own:
                    os.environ["GLOO_SOCKET_IFNAME"] = card
                    os.environ.setdefault("NCCL_SOCKET_IFNAME", card)
                    return


def choose_device(args: argparse.Namespace, local_rank: int, sabotage: str) -> torch.device:
    """Return this rank's device; a missing GPU becomes the CPU here, and a failure of the identity step."""
    if args.device == "cuda" and torch.cuda.is_available() and sabotage != "cpu_fallback":
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        return device
    torch.set_num_threads(1)
    return torch.device("cpu")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; what depends on the device has its default filled in."""
    parser = argparse.ArgumentParser(description="Prove that the ranks of this job train one model together.")
    parser.add_argument("--out", type=Path, required=True, help="directory of this machine for records and logs")
    parser.add_argument("--run-id", required=True, help="identifies the run; the result repeats it")
    parser.add_argument("--expect", required=True, help="ranks per node, as node1=2,node2=2")
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True, help="what each rank must work on")
    parser.add_argument("--steps", type=int, help="training steps (cuda: 120, cpu: 30)")
    parser.add_argument("--reference-steps", type=int, default=50, help="steps repeated in one process")
    parser.add_argument("--warmup", type=int, help="steps that are not timed (cuda: 20, cpu: 10)")
    parser.add_argument("--batch", type=int, default=4, help="sequences per rank and step")
    parser.add_argument("--length", type=int, default=32, help="tokens per sequence")
    parser.add_argument("--width", type=int, help="width of the model (cuda: 768, cpu: 32)")
    parser.add_argument(
        "--layers", type=int, help="layers of the model (cuda: 14, about 100 M parameters; cpu: 1, about 18,000)"
    )
    parser.add_argument("--rate", type=float, help="learning rate")
    parser.add_argument("--largest-bytes", type=int, help="largest collective (cuda: 1 GiB, cpu: 1 MiB)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds a rank waits for the others")
    args = parser.parse_args(argv)
    cuda = args.device == "cuda"
    for name, (on_gpu, on_cpu) in {
        # Without a GPU speed proves nothing, and an emulated processor does some 10 MFLOP/s.
        "steps": (120, 30),
        "warmup": (20, 10),
        "width": (768, 32),
        "layers": (14, 1),
        "rate": (3e-4, 1e-2),
        "largest_bytes": (1 << 30, 1 << 20),
    }.items():
        if getattr(args, name) is None:
            setattr(args, name, on_gpu if cuda else on_cpu)
    args.reference_steps = min(args.reference_steps, args.steps)
    args.node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    args.image = os.environ.get("DDP_PROOF_IMAGE", "")
    args.granted = os.environ.get("DDP_PROOF_GRANTED", "")
    return args


def prove(job: Job) -> int:
    """Take all steps; return the exit code."""
    args, started = job.args, time.time()
    bind_gloo(os.environ["MASTER_ADDR"])
    patience = timedelta(seconds=args.timeout)
    with job.record.talking("rendezvous"):
        dist.init_process_group("gloo", timeout=patience)
    reached = True
    for name, step in STEPS.items():
        job.record.update(step=name)
        begun = time.perf_counter()
        done = step(job) if reached else outcome("unknown", "not reached: the ranks are not those expected", "")
        job.steps[name] = {**done, "seconds": round(time.perf_counter() - begun, 3)}
        job.record.update(outcomes={name: done["verdict"] for name, done in job.steps.items()})
        if name == "identity":
            reached = done["verdict"] != "fail"
            if reached:
                with job.record.talking("data path"):
                    job.data = dist.new_group(backend="nccl" if job.device.type == "cuda" else "gloo", timeout=patience)
    verdicts = {done["verdict"] for done in job.steps.values()}
    verdict = next((word for word in ("fail", "unknown") if word in verdicts), "pass")
    result = {
        "schema": "ddp_proof.result/1",
        "run_id": args.run_id,
        "job_id": os.environ.get("SLURM_JOB_ID", ""),
        "world": job.world,
        "backend": dist.get_backend(job.data) if job.data else "none",
        "device": job.device.type,
        "simulated": job.simulated,
        "sabotage": job.sabotage,
        "program": own(),
        "verdict": verdict,
        "steps": job.steps,
        "started": started,
        "seconds": round(time.time() - started, 3),
    }
    job.record.update(step="end")
    with job.record.talking("last barrier"):
        dist.barrier()
    job.record.update(state="done")
    if job.rank == 0 and job.sabotage != "no_result":
        write_json(args.out / "result.json", result)
        lines = [f"{name:17} {done['verdict']:8} {done['observed']}" for name, done in job.steps.items()]
        os.write(args.console, ("\n".join(lines) + "\n").encode())
    dist.barrier()  # nobody ends, and has the others stopped by torchrun, before the result is written
    # What holds the groups keeps their threads until Python is gone, and gloo's may then end a rank by SIGABRT.
    job.data = job.model = None
    dist.destroy_process_group()
    return 3 if verdict == "fail" else 0


def main() -> int:
    """Run this rank; its output goes to its own log, and what it knows of itself to its record."""
    args = arguments()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    args.out.mkdir(parents=True, exist_ok=True)
    args.console = os.dup(1)  # kept for rank 0's summary
    log = os.open(args.out / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    simulated = [word for word in os.environ.get("CLUSTER_SIMULATED", "").split(",") if word]
    if "gpu" in simulated:
        args.device = "cpu"
    sabotage = os.environ.get("DDP_PROOF_SABOTAGE", "")
    facts = {"run_id": args.run_id, "rank": rank, "local_rank": local_rank, "node": args.node, "pid": os.getpid()}
    record = Record(args.out / f"rank-{rank}.json", **facts, simulated=simulated, sabotage=sabotage)
    record.listen()
    try:
        device = choose_device(args, local_rank, sabotage)
        world = int(os.environ["WORLD_SIZE"])
        # One process repeats what all ranks do: at a hundredth of a second for each batch, two minutes at the most.
        args.reference_steps = min(args.reference_steps, max(5, 12_000 // world))
        job = Job(args, record, rank, local_rank, world, device, simulated, sabotage)
        code = prove(job)
    except Exception as error:  # whatever it was, the record must name it
        record.fail(error)
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # an orderly end could wait for ever for threads that talk to ranks which are gone
    return code
