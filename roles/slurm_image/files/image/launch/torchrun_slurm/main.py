# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""torchrun-slurm [OPTION]... PROGRAM [WORD]...: start a distributed training in a step of Slurm.

    srun --ntasks-per-node=1 --kill-on-bad-exit=1 torchrun-slurm train.py --epochs 3

Works out what scripts compute by hand (how many nodes, which one this is, where they meet, how many workers, how many
threads each), prints it in one line on the first node, has all nodes looked at, and starts the launcher:

  --env torchrun   (as it is) torch.distributed.run with a worker for each granted GPU; one task a node
  --env kubeflow   PROGRAM itself, once a node, with WORLD_SIZE the number of nodes and RANK the node: for scripts that
                   call torchrun themselves, as platforms have it
  --env torch      PROGRAM itself in each task, with RANK, LOCAL_RANK, WORLD_SIZE: for init_method="env://"
  --env deepspeed  DeepSpeed's launcher without ssh, with a host file of the job's own; one task a node
  --env ssh        PROGRAM itself, on the first node, which reaches the others' containers by ssh: "deepspeed train.py"
                   by pdsh, mpirun, or a script that calls them. deepspeed is told the job's nodes and where they meet
                   unless its words say it. Keys and daemons are of this job alone. --output-dir, or the working
                   directory, must be the same on all nodes; the image needs openssh-server and openssh-client

  --nproc-per-node N   workers of a node; as it is the granted GPUs, and one where there are none
  -m, --module         PROGRAM is a module; and --no-python: it is no script of Python's. Both as torchrun has them
  --launcher-options "WORDS"   further options of torch.distributed.run or deepspeed, such as "--max-restarts=2"; none
                       that say how many workers there are, on which nodes, and where they meet
  --output-dir DIR     where the program writes: it must be the same directory on all nodes, and no container's own;
                       it is made, and none above it
  --no-check           start without a look: nodes reach one another, GPUs answer, clocks agree, /dev/shm has room
  --check-wait SECONDS in which torchrun-slurm begins on all nodes, with their images (300)
  --gpu-wait SECONDS   in which the driver answers (4): eight GPUs without persistence mode may take longer
  --hold TIME          after a failure keep everything as it is for so long: 30m, 3h
  --requeue-on=node-failure
                       where the check finds a node at fault, or one is lost, the job goes back into the queue without
                       that node, 20 times at most; not for what is the program's own, or wrong on all nodes. For jobs
                       of sbatch, with checkpoints and --open-mode=append
  --no-bind            leave workers on all processors; as it is each stays on those near its GPU
  --dry-run            print what would be run

What is set of MASTER_ADDR, MASTER_PORT, OMP_NUM_THREADS, NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME stays; the last two
also say by which interface nodes are to reach one another.
The last lines are those of the rank that failed first, and its exit code is the job's. Exit code 2: it cannot work so;
75: the check found something wrong, which is said. Nothing was started then. Needs Python 3.8; its own interpreter runs
PROGRAM. Nodes and the first one talk at ports between 10000 and 19999, by job and step.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import tempfile
from pathlib import Path

from torchrun_slurm import health, hostfile, launcher, numa, requeue, running, ssh, talk, team, watch
from torchrun_slurm.arguments import UNITS, Parser, count, parted, seconds
from torchrun_slurm.launcher import Plan
from torchrun_slurm.step import Refusal, Step


def options(words: list[str]) -> argparse.Namespace:
    """Return what is asked for."""
    parser = Parser(prog="torchrun-slurm", usage=__doc__, add_help=False, allow_abbrev=False)
    taken = [
        parser.add_argument("-h", "--help", action="help"),
        parser.add_argument("--env", choices=("torchrun", "kubeflow", "torch", "deepspeed", "ssh"), default="torchrun"),
        parser.add_argument("--nproc-per-node", type=count),
        parser.add_argument("-m", "--module", dest="how", action="append_const", const="-m", default=[]),
        parser.add_argument("--no-python", dest="how", action="append_const", const="--no-python"),
        parser.add_argument("--launcher-options", action="append", default=[]),
        parser.add_argument("--output-dir", default=""),
        parser.add_argument("--no-check", action="store_true"),
        parser.add_argument("--check-wait", type=float, default=300.0),
        parser.add_argument("--gpu-wait", type=float, default=health.CUDA_LIMIT),
        parser.add_argument("--hold", type=seconds, default=0.0),
        parser.add_argument(requeue.OPTION, choices=("node-failure",)),
        parser.add_argument("--no-bind", action="store_true"),
        parser.add_argument("--dry-run", action="store_true"),
    ]
    own, program = parted(words, {name: action.nargs is None for action in taken for name in action.option_strings})
    given = parser.parse_args(own)
    given.program, given.launcher_options = program, " ".join(given.launcher_options)
    if not given.program:
        raise Refusal("no program is named", "torchrun-slurm train.py")
    if given.how and given.env not in launcher.LAUNCHED:
        raise Refusal(
            f"{given.how[0]}: with --env {given.env} PROGRAM is started as it stands",
            f"torchrun-slurm --env {given.env} python -m MODULE",
        )
    if given.nproc_per_node is not None and given.nproc_per_node < 1:
        raise Refusal(f"--nproc-per-node {given.nproc_per_node}: it must be 1 or more", "leave it out")
    for option, value in (("--check-wait", given.check_wait), ("--gpu-wait", given.gpu_wait)):
        # Not a number (nan) is in no range, either.
        if not 0 < value <= UNITS["d"]:
            raise Refusal(f"{option} {value:g}: it must be seconds, a day (86400) at most", "leave it out")
    if given.launcher_options and given.env not in launcher.LAUNCHED:
        raise Refusal(
            f"--launcher-options: with --env {given.env} no launcher is started that would take them", "leave one out"
        )
    # The working directory, which stands in for it, is for keys alone.
    given.lasts = bool(given.output_dir)
    if given.env == "ssh":
        if given.no_check:
            raise Refusal(
                "--env ssh follows from what is looked at, and --no-check has nothing looked at", "leave it out"
            )
        given.output_dir = given.output_dir or str(Path.cwd())
    if given.requeue_on and given.no_check:
        raise Refusal(
            f"{requeue.OPTION} follows from what is looked at, and --no-check has nothing looked at", "leave one out"
        )
    return given


def checked(member: team.Member, plan: Plan, back: requeue.Requeue | None) -> bool:
    """Tell whether all is well; say what is not, each thing once, and put the job back where that is wanted."""
    problems = member.check(health.Gpus(plan.gpus if member.step.local == 0 else 0, limit=plan.given.gpu_wait))
    if not problems:
        if member.leads:
            team.say(member.looked)
        return True
    ends_with(member.code)
    blamed = member.blamed() if back else []
    # The first node's task says it for all, but for what it cannot know. Who puts the job back does that first: where
    # one task has ended, srun may end the others.
    if member.leads or not (member.lines or (not blamed and member.told_first(problems))):
        for one in problems:
            team.say(f"not started: {one}")
        if member.looked:
            team.say(member.looked)
    if back and blamed:
        if back.without(blamed):
            return False  # Slurm ends the others
        ends_with(member.code)
    elif back and member.lines and not member.leads:
        # The first node's task puts the job back; who ends before would have srun end that one.
        member.lines[0].hear(requeue.DONE)
    member.tell_all(problems)
    return False


def ends_with(code: int) -> None:
    """Have this task's exit code stay, also where srun ends it meanwhile, because another's has come first."""

    def end(*_: object) -> None:
        raise SystemExit(code)

    for number in requeue.ENDING:
        signal.signal(number, end)


def started(plan: Plan, environment: dict[str, str], directory: Path) -> watch.Program:
    """Start the program."""
    workers = plan.workers if plan.launches else 0
    if plan.given.env == "deepspeed":
        plan.list_hosts(directory)
        # Its launcher numbers a node's GPUs from 0, which on a node that keeps jobs from nothing are another job's.
        if "CUDA_VISIBLE_DEVICES" in environment:
            (directory / "visible").write_text(environment["CUDA_VISIBLE_DEVICES"], encoding="utf-8")
    if workers and workers == plan.gpus and not plan.given.no_bind:
        chosen = numa.near(environment.get("CUDA_VISIBLE_DEVICES"), os.sched_getaffinity(0))
        (directory / "cpus").write_text(json.dumps([sorted(one) for one in chosen]), encoding="ascii")
    return watch.Program(plan.words(str(directory)), {**environment, **plan.added}, directory, workers)


def entered(
    plan: Plan, environment: dict[str, str], directory: Path, member: team.Member, way: ssh.Ssh
) -> watch.Program | None:
    """Let the nodes be entered by ssh, and start the program on the first; None where a node cannot be entered."""
    own = {**environment, **plan.added}
    words = way.serve(directory, launcher.OWN, own)
    daemon = way.daemon = watch.Program(words, own, directory, 0)
    begun = way.begun()
    if not member.leads:
        member.lines[0].say({"begun": begun})
        return daemon
    closed = [] if begun else [member.step.name]
    for task, line in sorted(member.lines.items()):
        closed += [] if line.hear(ssh.SEEN + 2 * ssh.BEGUN).get("begun") else [member.names[task]]
    way.withdraw()
    if closed:
        team.say(f"not started: {', '.join(closed)}: no sshd answers there at port {member.step.talk_port}: see above")
        return None
    plan.list_hosts(directory)
    hostfile.stand_in(directory, launcher.OWN, own)
    own["PATH"] = f"{directory}/bin:{own.get('PATH', os.defpath)}"
    return watch.Program(plan.words(str(directory)), own, directory, 0)


def watched(run: running.Run, hold: float) -> int:
    """Watch the program to its end. Signals are its own: Slurm sends them to all of a step's processes."""
    # A container's first process is the only one that hears.
    alone = os.getpid() == 1 or os.getppid() in (0, 1)

    def heard(number: int, _: object) -> None:
        run.asked_to_end |= number in (signal.SIGTERM, signal.SIGINT)
        if alone:
            run.program.signal(number)

    all_of_them = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    for number in all_of_them:
        signal.signal(number, heard)
    code = run.lead(hold) if run.member.leads or not run.member.lines else run.follow()
    # Where one task has ended, srun ends the others at once (--kill-on-bad-exit), whose own exit code then counts.
    for number in all_of_them:
        signal.signal(number, signal.SIG_IGN)
    return code


def main(words: list[str], environment: dict[str, str]) -> int:
    """Start the training and return its exit code."""
    directory: Path | None = None
    way: ssh.Ssh | None = None
    unheard: team.Member | None = None
    try:
        given = options(words)
        step = Step(environment)
        if not given.no_check and not given.dry_run:
            unheard = team.Member(step, step.nodes[0], step.talk_port, given.check_wait)
        plan = Plan(step, given, environment)
        if step.task == 0:
            team.say(plan.told())
        back = requeue.Requeue(environment, step.job) if given.requeue_on else None
        if back and back.hindered():
            raise Refusal(*back.hindered())
        if given.dry_run:
            print(*(f"{name}={value}" for name, value in plan.added.items()), shlex.join(plan.words("DIRECTORY")))
            return 0
        if given.env == "ssh":
            way = ssh.Ssh(step, given.output_dir, environment)
            if step.task == 0:
                way.offer()
        output = (given.output_dir, given.lasts)
        member = team.Member(step, plan.meets, step.talk_port, given.check_wait, *output, plan.way)
        unheard = None
        if not given.no_check and not checked(member, plan, back):
            return member.code
        directory = Path(tempfile.mkdtemp(prefix=f"torchrun-slurm-{step.job}-"))
        program = entered(plan, environment, directory, member, way) if way else started(plan, environment, directory)
        if program is None:
            return talk.CHECK_FAILED
        rank = step.task if given.env == "torch" else None
        return watched(running.Run(member, program, rank, back, served=bool(way)), given.hold)
    except Refusal as refusal:
        where = environment.get("SLURMD_NODENAME", "this computer")
        told = f"{where}: {refusal.args[0]}. Fix: {refusal.args[1]}"
        team.say(told)
        if unheard:
            ends_with(2)
            unheard.refuse(told, 2)
        return 2
    except OSError as problem:
        team.say(f"{problem.filename}: {problem.strerror}")
        return 127 if isinstance(problem, FileNotFoundError) else 126
    finally:
        if way:
            way.end()
        if directory:
            shutil.rmtree(directory, ignore_errors=True)
