#!/usr/bin/python3
# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Submit the DDP job as an ordinary user, wait for its end, print what Slurm says about it as JSON.

Bounded: a job that does not start in time, or does not end in time, is cancelled, and so is the job of a run that is
itself stopped. Keys of the document: ``run_id``, ``id``, ``state``, ``reason``, ``exit_code`` (None where it has none),
``waited`` (seconds until it started). Exit code 0 whenever there is a document: to judge it is the judge's business.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

WAITING = ("PENDING", "CONFIGURING", "REQUEUED")
GOING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED")


def slurm(options: argparse.Namespace, *command: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands as the ordinary user, where they are installed: in slurmctld's container."""
    settings = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    return subprocess.run(
        ["docker", "exec", "--interactive", "--user", options.user, *settings, options.container, *command],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def ask(options: argparse.Namespace, job: str) -> dict[str, str]:
    """Return what Slurm says about the job; empty where it does not answer."""
    said = slurm(options, "scontrol", "--oneliner", "show", "job", job)
    return dict(re.findall(r"(\w+)=(\S*)", said.stdout)) if said.returncode == 0 else {}


def why_not(options: argparse.Namespace, facts: dict[str, str]) -> str:
    """Return Slurm's reason for not starting a job, with what it says about nodes that are out of service."""
    said = slurm(options, "sinfo", "--noheader", "--list-reasons", "--format=%n %T: %E").stdout.split("\n")
    return "; ".join([facts.get("Reason", ""), *(line.strip() for line in said if line.strip())])


def report(run_id: str, job: str, facts: dict[str, str], **more: Any) -> dict[str, Any]:
    """Return the document."""
    state = facts.get("JobState", "")
    code, _, number = facts.get("ExitCode", "").partition(":")
    ended = bool(state) and state not in WAITING + GOING
    exit_code = (int(code) or (128 + int(number) if number not in ("", "0") else 0)) if ended and code else None
    reason = facts.get("Reason", "")
    return {"run_id": run_id, "id": job, "state": state, "reason": reason, "exit_code": exit_code, **more}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Submit, wait, and return the document."""
    run_id = f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(3)}"
    nodes = options.expect.count("=")
    wanted = [f"--nodes={nodes}", f"--nodelist={','.join(pair.split('=')[0] for pair in options.expect.split(','))}"]
    if options.gpus:
        wanted.append(f"--gres=gpu:{options.gpus}")
    sent = slurm(
        options,
        "sbatch",
        "--parsable",
        *wanted,
        stdin=options.script.read_text(encoding="utf-8"),
        DDP_RUN_ID=run_id,
        DDP_EXPECT=options.expect,
        **dict(setting.split("=", 1) for setting in options.env),
    )
    job = sent.stdout.strip().partition(";")[0]
    if sent.returncode or not job.isdigit():
        return report(run_id, "", {}, waited=0) | {"reason": (sent.stderr or sent.stdout).strip()}

    def stop(number: int, frame: FrameType | None) -> None:
        slurm(options, "scancel", job)
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    begun, started, facts = time.monotonic(), 0.0, {}
    while True:
        now = time.monotonic() - begun
        facts = ask(options, job) or facts
        state = facts.get("JobState", "")
        if state and state not in WAITING + GOING:
            return report(run_id, job, facts, waited=round(started, 1))
        if state in GOING and not started:
            started = now
        patience = options.start_timeout if not started else started + options.run_timeout
        if now > patience:
            slurm(options, "scancel", job)
            last = report(run_id, job, facts, waited=round(started or now, 1))
            return last | ({"state": "TIMEOUT"} if started else {"reason": why_not(options, facts)})
        time.sleep(1)


def main() -> int:
    """Read the command line and print the document."""
    parser = argparse.ArgumentParser(description="Submit the DDP job and wait for it.")
    parser.add_argument("--script", type=Path, required=True, help="the batch script")
    parser.add_argument("--container", required=True, help="the container that has sbatch")
    parser.add_argument("--user", required=True, help="uid:gid of the ordinary user")
    parser.add_argument("--expect", required=True, help="ranks per node, as node1=2,node2=2")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs to ask for on each node")
    parser.add_argument("--start-timeout", type=float, required=True, help="seconds until the job must have started")
    parser.add_argument("--run-timeout", type=float, required=True, help="seconds until the job must have ended")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="environment of the job")
    json.dump(run(parser.parse_args()), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
