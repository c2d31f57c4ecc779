#!/usr/bin/python3
# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Submit DDP jobs as an ordinary user, wait for their ends, print what Slurm says about them as JSON.

Bounded: a job that cannot start, does not start in time, or does not end in time, is cancelled, and so are the jobs of
a run that is itself stopped, or whose slurmctld does not answer. How far the jobs are is told on standard error
meanwhile, from what they write into their own comments (ddp_job.sh).

The document has ``jobs``, in the order given, each with ``run_id``, ``id``, ``state``, ``reason``, ``exit_code`` (None
where it has none), ``out`` (Slurm's lines on nodes out of service, where the job did not start) and ``waited`` (seconds
until it started). Exit code 0 whenever there is a document: to judge it is the judge's business.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

WAITING = ("PENDING", "CONFIGURING", "REQUEUED")
GOING = ("RUNNING", "SUSPENDED", "STOPPED")
#: The job's end, or that of an attempt to launch it, waits for its nodes; a node that does not answer never says.
ENDING = "COMPLETING"
#: Reasons that no waiting ends. Slurm may say one in passing, so it must say it for a few seconds.
FINAL = re.compile(
    r"PartitionDown|PartitionInactive|ReqNodeNotAvail|are_DOWN|NodeDown|JobHeld|launch_failed|JobLaunchFailure"
    r"|BadConstraints|InvalidAccount|InvalidQOS|PartitionNodeLimit|PartitionTimeLimit|Assoc(Grp|Max)|QOS(Grp|Max|Min)"
)
INSISTS = 4  # seconds
#: Seconds in which nodes clear up after a job: Slurm's KillWait (30) and UnkillableStepTimeout (60), and a moment.
CLEARS = 95.0
#: The beginning of a line that tells how far it is: plugins/module_utils/telling.py.
MARK = "clusterctl-told:"
#: The program's steps by their names in its records, as they are told.
STEPS = {
    "identity": "A who takes part",
    "collectives": "B collectives",
    "broadcast": "C equal weights",
    "gradients": "D averaged gradients",
    "negative_control": "E negative control",
    "parameters": "F training",
    "reference": "G reference of one process",
    "learning": "H learning",
    "speed": "J speed",
}
ENDED = "its ranks have ended"
VERDICTS = ("pass", "fail", "unknown", "skip")


class SilentError(Exception):
    """Slurm's command did not end in time."""


@dataclass
class Job:
    """One job: what it is to be, what became of it."""

    expect: dict[str, int]
    gpus: int
    partition: str
    run_id: str
    id: str = ""
    begun: float = 0.0
    started: float = 0.0
    final_since: float = 0.0
    ending_since: float = 0.0
    facts: dict[str, str] = field(default_factory=dict)
    document: dict[str, Any] | None = None
    ended: set[str] = field(default_factory=set)
    going: str = ""

    @property
    def name(self) -> str:
        """Its name in Slurm, by which it is found even where its number never came back."""
        return f"clusterctl-ddp-{self.run_id}"

    def report(self, **more: Any) -> None:
        """Write its document from what Slurm said last."""
        state = self.facts.get("JobState", "")
        code, _, number = self.facts.get("ExitCode", "").partition(":")
        ended = bool(state) and state not in (*WAITING, *GOING, ENDING)
        exit_code = (int(code) or (128 + int(number) if number not in ("", "0") else 0)) if ended and code else None
        told = {"run_id": self.run_id, "id": self.id, "state": state, "reason": self.facts.get("Reason", "")}
        self.document = {**told, "exit_code": exit_code, "waited": round(self.started, 1), **more}

    def tell(self) -> None:
        """Tell what has ended since the last look, note how far it is; what the job itself says is only compared."""
        said = dict(word.split("=", 1) for word in self.facts.get("Comment", "").split(",") if "=" in word)
        for name, title in STEPS.items():
            if said.get(name) in VERDICTS and name not in self.ended:
                self.ended.add(name)
                tell("ended", f"job {self.id}: {title}: {said[name]}")
        step = re.fullmatch(r"training_step_(\d{1,6})_of_(\d{1,6})", said.get("waiting", ""))
        going = ENDED if said.get("step") == "end" else STEPS.get(said.get("step", ""), "")
        state = self.facts.get("JobState")
        if state in WAITING:
            going = f"waits for its nodes ({self.facts.get('Reason', '')})"
        elif state in GOING and not self.ended and not going:
            going = "its ranks are starting"
        going += f", step {step[1]} of {step[2]}" if going == STEPS["parameters"] and step else ""
        self.going = f"job {self.id}: {going}" if going else self.going


def tell(kind: str, text: str) -> None:
    """Tell whoever waits for this program how far it is."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{MARK} {kind} {text}\n")
        sys.stderr.flush()


class Slurm:
    """Slurm's commands, run as the ordinary user where they are installed: in slurmctld's container."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def run(self, *command: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Run one command.

        Raises:
            SilentError: it did not end in time.
        """
        settings = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
        where = ["docker", "exec", "--interactive", "--user", self.options.user, *settings, self.options.container]
        limit = self.options.answer_timeout
        try:
            return subprocess.run(
                [*where, *command], input=stdin, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise SilentError(f"{command[0]} did not answer within {limit:.0f} s") from error

    def cancel(self, job: Job) -> str:
        """Cancel a job; return what to do where Slurm does not take it."""
        for _ in range(2):
            try:
                if self.run("scancel", *([job.id] if job.id else [f"--name={job.name}"])).returncode == 0:
                    return ""
            except SilentError:
                continue
        return f"it could not be cancelled: scancel {job.id or f'--name={job.name}'}"

    def submit(self, job: Job) -> None:
        """Submit a job; where that fails, its document says why."""
        wanted = [f"--nodes={len(job.expect)}", f"--nodelist={','.join(job.expect)}", f"--job-name={job.name}"]
        wanted += [f"--gres=gpu:{job.gpus}"] if job.gpus else []
        wanted += [f"--partition={job.partition}"] if job.partition else []
        script = self.options.script.read_text(encoding="utf-8")
        settings = dict(setting.split("=", 1) for setting in self.options.env)
        expect = ",".join(f"{node}={count}" for node, count in job.expect.items())
        output = ["--chdir=/", f"--output={self.options.runs}/job-%j.log"]
        try:
            sent = self.run(
                *("sbatch", "--parsable", *self.options.submit.split(), *output, *wanted),
                stdin=script,
                DDP_RUN_ID=job.run_id,
                DDP_EXPECT=expect,
                DDP_GPUS=str(job.gpus),
                **settings,
            )
        except SilentError as error:
            # It may have been taken all the same, and would hold the nodes.
            left = self.cancel(job) or "a job that was taken all the same is cancelled"
            job.report(reason=f"{error}; {left}")
            return
        job.id = sent.stdout.strip().partition(";")[0]
        if sent.returncode or not job.id.isdigit():
            job.id = ""
            job.report(reason=(sent.stderr or sent.stdout).strip())
        job.begun = time.monotonic()

    def look(self, job: Job) -> None:
        """Ask about a job; write its document where it has ended or waited long enough."""
        try:
            said = self.run("scontrol", "--oneliner", "show", "job", job.id)
            job.facts = dict(re.findall(r"(\w+)=(\S*)", said.stdout)) if said.returncode == 0 else job.facts
            silence = ""
            job.tell()
        except SilentError as error:
            silence = str(error)
        now, state, reason = time.monotonic() - job.begun, job.facts.get("JobState", ""), job.facts.get("Reason", "")
        if state and state not in (*WAITING, *GOING, ENDING):
            job.report()
            return
        if state in GOING and not job.started:
            job.started = now
        final = not job.started and bool(FINAL.search(reason))
        job.final_since = (job.final_since or now) if final else 0.0
        hopeless = final and now - job.final_since >= INSISTS
        job.ending_since = (job.ending_since or now) if state == ENDING else 0.0
        if job.ending_since:
            reason = f"{ENDING} for {now - job.ending_since:.0f} s"
        if not job.started:
            patience = self.options.start_timeout
        elif job.ending_since:
            patience = job.ending_since + self.options.clear_timeout
        else:
            patience = job.started + self.options.run_timeout
        if not hopeless and now <= patience:
            return
        left = self.cancel(job)
        if job.started:
            job.report(state="TIMEOUT", reason="; ".join(word for word in (reason, silence, left) if word))
        else:
            job.report(reason="; ".join(word for word in (reason, silence, left) if word), out=self.out_of_service())

    def out_of_service(self) -> list[str]:
        """Return Slurm's lines on nodes that are out of service: node, state, reason."""
        try:
            said = self.run("sinfo", "--noheader", "--Node", "--list-reasons", "--format=%n %T: %E").stdout
        except SilentError:
            return []
        return [line.strip() for line in said.split("\n") if line.strip()]


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Submit, wait, and return the document."""
    slurm, begun = Slurm(options), time.strftime("%Y%m%dT%H%M%S")
    jobs = [Job(**job, run_id=f"{begun}-{secrets.token_hex(3)}") for job in json.loads(options.jobs)]

    def stop(number: int, frame: FrameType | None) -> None:
        for job in jobs:
            if job.document is None:
                slurm.cancel(job)
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    for job in jobs:
        slurm.submit(job)
    told = ""
    while open_jobs := [job for job in jobs if job.document is None]:
        for job in open_jobs:
            slurm.look(job)
        going = "; ".join(job.going for job in open_jobs if job.going)
        if going != told:
            tell("going", told := going)
        time.sleep(1)
    return {"jobs": [job.document for job in jobs]}


def main() -> int:
    """Read the command line and print the document."""
    parser = argparse.ArgumentParser(description="Submit DDP jobs and wait for them.")
    parser.add_argument("--script", type=Path, required=True, help="the batch script")
    parser.add_argument("--runs", required=True, help="directory of the user's runs on each node")
    parser.add_argument("--container", required=True, help="the container that has sbatch")
    parser.add_argument("--user", required=True, help="uid:gid of the ordinary user")
    parser.add_argument("--submit", default="", help="what sbatch is told beside it: --account=A --qos=Q")
    parser.add_argument("--jobs", required=True, help='JSON: [{"expect": {"node1": 2}, "gpus": 2, "partition": ""}]')
    parser.add_argument("--start-timeout", type=float, required=True, help="seconds until a job must have started")
    parser.add_argument("--run-timeout", type=float, required=True, help="seconds until a job must have ended")
    parser.add_argument(
        "--answer-timeout", type=float, default=60.0, help="seconds until a command of Slurm's must end"
    )
    parser.add_argument(
        "--clear-timeout", type=float, default=CLEARS, help="seconds until nodes must have cleared up after a job"
    )
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="environment of the jobs")
    json.dump(run(parser.parse_args()), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
