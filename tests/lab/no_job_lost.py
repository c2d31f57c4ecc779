#!/usr/bin/python3
"""See whether a change of the cluster loses a job: run it as an ordinary user where jobs are submitted.

Usage: no_job_lost.py NODE

It starts jobs of many kinds, and prints "ready"; on NODE four run at once. Type a word and Enter when a change begins:
a job a second is submitted. Type Enter alone when the change is over. After the last one, press Ctrl-D: what waits is
released, and all jobs are judged. It prints what was lost. Exit codes: 0 nothing; 1 something; 2 wrong usage.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise

#: Seconds in which jobs begin, or end, after they were told to.
PATIENCE = 300
#: Submissions while something changes, at the least.
SUBMISSIONS = 10

#: Counts the seconds in its own /tmp and at home, and loads data with workers in a container. Told to (SIGUSR1), it
#: starts a new step and another container, and ends with exit code 3.
WATCHED = r"""#!/bin/bash
rm -rf ~/no-job-lost; mkdir ~/no-job-lost; cd ~/no-job-lost || exit 90
export tmp=/tmp/no-job-lost.$SLURM_JOB_ID
count() {
    for ((number = 1; ; number++)); do
        echo "$number $EPOCHSECONDS" | tee -a home >>"$tmp"
        [ ! -e stop ] || break
        sleep 1
    done
}
image=$(podman images --quiet --no-trunc | head -n 1)
container() { podman run --rm --interactive --ipc host --network host --volume "$PWD:/work" "$image" python3 -; }

trap '' USR1
count &
container <<'END' >loader 2>trouble &
import os, time
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        time.sleep(0.2)
        return torch.tensor([index])

# Workers that stay, whose batches come through shared memory.
loader, epochs = DataLoader(Numbers(), batch_size=5, num_workers=2, persistent_workers=True), 0
while not os.path.exists("/work/stop"):
    seen = torch.cat(list(loader)).flatten().tolist()
    assert seen == list(range(10)), seen
    epochs += 1
    if epochs == 1:
        print("begun", flush=True)
print("whole", epochs, flush=True)
END
loader=$!
trap 'over=1' USR1
while [ -z "$over" ]; do sleep 1; done
trap '' USR1
srun --ntasks=1 --overlap sh -c 'echo "step $(tail -n 1 "$tmp")"' </dev/null >step 2>&1
container <<<'print("container")' >container 2>&1
touch stop
wait $loader
echo "loader $?" >>loader
wait
mv "$tmp" tmp
exit 3
"""

#: An array of four, one at a time: the second waits until it is told to end. Each ends with its index.
ARRAY = r"""#!/bin/bash
trap 'over=1' USR1
while [ "$SLURM_ARRAY_TASK_ID" = 1 ] && [ -z "$over" ]; do sleep 1; done
exit "$SLURM_ARRAY_TASK_ID"
"""

#: What the two interactive ones run: an echo, and a shell that starts a step when it is told to.
ECHO = 'echo $SLURM_JOB_ID; while read -r word; do echo "$word"; done; exit 4'
SHELL = "echo $SLURM_JOB_ID; read -r word; srun --chdir=/ echo $word </dev/null; exit 5"


@dataclass(frozen=True)
class Job:
    """A job that was accepted, and the exit code with which it ends. ``waits``: it is pending until it is released."""

    kind: str
    id: str
    code: int
    waits: bool = False

    @property
    def row(self) -> str:
        """What ``sacct`` says of it."""
        return f"{self.id}|{'FAILED' if self.code else 'COMPLETED'}|{self.code}:0"


# -- judging: pure -----------------------------------------------------------------------------------------------------


def numbers_problems(name: str, text: str, changes: tuple[int, int]) -> list[str]:
    """Return what is wrong with the numbers that a job wrote, one a second with the time, from before ``changes``."""
    rows = [line.split() for line in text.splitlines()]
    if not rows or any(len(row) != 2 or not all(word.isdecimal() for word in row) for row in rows):
        return [f"numbers in {name}: unreadable or none"]
    written, seconds = [int(row[0]) for row in rows], [int(row[1]) for row in rows]
    wrong = {
        "missing": sorted(set(range(1, max(written) + 1)) - set(written)),
        "double": sorted(number for number, times in Counter(written).items() if times > 1),
    }
    found = [f"numbers in {name}: {len(which)} {word}, first {which[0]}" for word, which in wrong.items() if which]
    if not seconds[0] <= changes[0] <= changes[1] <= seconds[-1]:
        found.append(
            f"numbers in {name}: from {seconds[0]} to {seconds[-1]}; the changes: {changes[0]} to {changes[1]}"
        )
    return found


def pause(text: str) -> int:
    """Return the most seconds between two numbers."""
    seconds = [int(line.split()[-1]) for line in text.splitlines()]
    return max((after - before for before, after in pairwise(seconds)), default=0)


#: What the watched job leaves at home, beside its numbers.
LEFT = {"loader": r"begun\nwhole \d+\nloader 0", "step": r"step \d+ \d+", "container": "container"}


def judge(
    jobs: Iterable[Job], rows: str, files: Mapping[str, str], said: Mapping[str, str], changes: tuple[int, int]
) -> list[str]:
    """Return what was lost, or is twice there.

    ``rows`` is what ``sacct`` says with all duplicates, ``files`` what the watched job has left, ``said`` what the
    interactive ones printed in the end, ``changes`` when the first began and the last was over, in seconds since 1970.
    """
    found = []
    told: dict[str, list[str]] = {}
    for row in rows.split("\n"):
        told.setdefault(row.partition("|")[0], []).append(row)
    for job in jobs:
        own = told.get(job.id, [])
        if len(own) != 1:
            found.append(f"{job.kind} {job.id}: {len(own)} rows in sacct, not one: {' '.join(own)}")
        elif own[0] != job.row:
            found.append(f"{job.kind} {job.id}: {own[0]}, not {job.row}")
    for name in ("home", "tmp"):
        found += numbers_problems(name, files.get(name, ""), changes)
    for name, pattern in LEFT.items():
        if not re.fullmatch(pattern, (text := files.get(name, "").strip())):
            found.append(f"watched: {name} says {text!r}")
    found += [f"{name}: says {text!r}" for name, text in said.items() if text.strip() != "still here"]
    return found


# -- acting ------------------------------------------------------------------------------------------------------------


def run(*words: str, text: str = "", known: bool = True) -> str:
    """Run one of Slurm's commands, and return what it prints. Unless ``known``, it may not know what is asked for."""
    return subprocess.run(words, input=text, stdout=subprocess.PIPE, text=True, check=known).stdout.strip()


def until(condition: Callable[[], object]) -> bool:
    """Wait for something, and tell whether it came."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(1)
    return True


FIXED = ("--ntasks=1", "--mem=100", "--time=60", "--chdir=/")


def submit(*options: str, script: str) -> str:
    """Submit a script, and return the job's number."""
    return run("sbatch", "--parsable", "--output=/dev/null", *FIXED, *options, text=script).partition(";")[0]


class Submitting(threading.Thread):
    """Submits a job a second until it is told to stop, ten at the least."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.change, self.over = name, threading.Event()
        self.jobs: list[Job] = []
        self.refused: list[str] = []

    def run(self) -> None:
        """Submit them."""
        while len(self.jobs) + len(self.refused) < SUBMISSIONS or not self.over.is_set():
            words = ["sbatch", "--parsable", "--output=/dev/null", *FIXED]
            done = subprocess.run(words, input="#!/bin/sh\nexit 6\n", capture_output=True, text=True, check=False)
            if done.returncode:
                self.refused.append(done.stderr.strip())
            else:
                self.jobs.append(Job(f"during {self.change}", done.stdout.partition(";")[0].strip(), 6))
            self.over.wait(1)

    def end(self) -> str:
        """Wait for the last one, and return how many there were."""
        self.over.set()
        self.join()
        refused = "".join(f"; refused: {words}" for words in dict.fromkeys(self.refused))
        return f"{self.change}: {len(self.jobs)} accepted, {len(self.refused)} refused{refused}"


class Work:
    """The jobs that are there while something changes."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.jobs: list[Job] = []
        self.interactive: dict[str, subprocess.Popen[str]] = {}

    def begin(self) -> None:
        """Submit them, and wait until those run that are to run."""
        here, later = f"--nodelist={self.node}", "--begin=now+4hours"
        self.watched = submit(here, "--mem=1500", "--job-name=watched", script=WATCHED)
        self.jobs.append(Job("watched", self.watched, 3))
        self.array = submit(here, "--array=0-3%1", script=ARRAY)
        self.jobs += (Job("array", f"{self.array}_{index}", index, waits=index > 1) for index in range(4))
        for kind, code, options in (
            ("held", 7, ["--hold"]),
            ("pending", 0, [later]),
            ("names a node", 8, [later, here]),
            ("dependent", 9, [f"--dependency=afterany:{self.watched}"]),
        ):
            self.jobs.append(Job(kind, submit(*options, script=f"#!/bin/sh\nexit {code}\n"), code, waits=True))
        for kind, code, text in (("srun", 4, ECHO), ("salloc", 5, SHELL)):
            words = [kind, *FIXED, here, "sh", "-c", text]
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.interactive[kind] = process
            self.jobs.append(Job(kind, process.stdout.readline().strip(), code))
        if not until(lambda: "begun" in self.left("loader") and self.state(f"{self.array}_1") == "RUNNING"):
            raise SystemExit(f"no_job_lost.py: the first jobs did not begin: {self.left('trouble')}")

    def left(self, name: str) -> str:
        """Return what the watched job has written so far: by a step of it, as homes need not be shared."""
        step = ("srun", "--overlap", f"--jobid={self.watched}", "--chdir=/", "sh", "-c")
        return run(*step, f"cat ~/no-job-lost/{name} 2>/dev/null || true")

    def state(self, job: str) -> str:
        """Return a job's state in the queue."""
        return run("squeue", "--noheader", "--array", "--me", f"--jobs={job}", "--format=%T", known=False)

    def waiting(self) -> list[str]:
        """Return those that should wait, and do not."""
        states = {job: self.state(job.id) for job in self.jobs if job.waits}
        return [
            f"{job.kind} {job.id}: {state or 'not in the queue'}" for job, state in states.items() if state != "PENDING"
        ]

    def finish(self) -> tuple[dict[str, str], dict[str, str]]:
        """Release what waits, and see all to its end; return what the watched job left, and what was said."""
        said = {kind: answered(process) for kind, process in self.interactive.items()}
        # Of a job that was lost Slurm knows nothing; the judge says so.
        for job in self.jobs:
            if job.kind == "held":
                run("scontrol", "release", job.id, known=False)
            elif job.kind in ("pending", "names a node"):
                run("scontrol", "update", f"JobId={job.id}", "StartTime=now", known=False)
        for number in (self.watched, f"{self.array}_1"):
            run("scancel", "--batch", "--signal=USR1", number, known=False)
        until(lambda: not run("squeue", "--noheader", f"--jobs={numbers(self.jobs)}", known=False))
        script = "cd ~/no-job-lost && tail -n +1 -- *"
        text = run("srun", *FIXED, f"--nodelist={self.node}", "sh", "-c", script, known=False) + "\n"
        return dict(re.findall(r"(?ms)^==> (\w+) <==\n(.*?)(?=\n==> |\Z)", text)), said

    def cancel(self) -> None:
        """Leave nothing of it that runs or waits."""
        run("scancel", *numbers(self.jobs).split(","), known=False)


def answered(process: subprocess.Popen[str]) -> str:
    """Say a last word to an interactive one, and return what it printed since its number."""
    try:
        return process.communicate("still here\n", timeout=PATIENCE)[0]
    except (subprocess.TimeoutExpired, BrokenPipeError):
        return ""


def numbers(jobs: Iterable[Job]) -> str:
    """Return the jobs' numbers as Slurm's commands take them."""
    return ",".join(dict.fromkeys(job.id.partition("_")[0] for job in jobs))


def accounted(jobs: list[Job]) -> str:
    """Return what sacct says, as soon as each job has ended there: slurmctld tells the database of some at a time."""
    words = ("sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", "--format=JobID,State,ExitCode")
    asked = f"--jobs={numbers(jobs)}"
    end = time.monotonic() + 60
    while True:
        rows = run(*words, asked)
        if {job.row for job in jobs} <= set(rows.split("\n")) or time.monotonic() > end:
            return rows
        time.sleep(1)


def main() -> int:
    """Run the program."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    work = Work(sys.argv[1])
    try:
        work.begin()
        print("ready", flush=True)
        begun, submitting = int(time.time()), None
        for line in chain(iter(sys.stdin.readline, ""), [""]):
            if submitting:
                print(submitting.end(), flush=True)
                work.jobs += submitting.jobs
            submitting = Submitting(line.strip()) if line.strip() else None
            if submitting:
                submitting.start()
        over, problems = int(time.time()), work.waiting()
        files, said = work.finish()
        problems += judge(work.jobs, accounted(work.jobs), files, said, (begun, over))
    finally:
        work.cancel()
    if problems:
        print(*problems, sep="\n")
        return 1
    pauses = " and ".join(f"{pause(files[name])} s in {name}" for name in ("home", "tmp"))
    print(f"no job lost of {len(work.jobs)}; between two numbers at most {pauses}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
