"""The templates of jobs that users copy: each runs as it stands, for an ordinary user, on two nodes, to its end.

What is changed is what their headers say: the image, and sizes that fit the simulated machines.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import labs
import pytest
from worker import free_port

from provision import content

PLACE = "/usr/local/share/clusterctl/jobs"
SIZES = "--cpus-per-task=1 --mem-per-gpu=600M --time=10"
LOSS = re.compile(r"(?:step|iteration) (\d+)\S* (?:lm )?loss (\d+\.\d+)")


def every_day(templates: Iterable[str], one: str) -> list[Any]:
    """Return the templates as parameters of a test, of which one is for every day."""
    return [name if name == one else pytest.param(name, marks=pytest.mark.night) for name in templates]


@pytest.fixture(scope="module")
def templates(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    """A lab whose user has copied all templates to a directory of theirs; IMAGE is the one of the proof of training."""
    lab = provisioned_lab
    lab.said(f"rm -rf templates && cp -rL {PLACE} templates")
    image = lab.said("srun podman images --quiet --filter readonly=true").split()[0]
    lab.said(f"cd templates && echo 'export IMAGE={image}' >image.sh")
    yield lab
    lab.said("rm -rf templates")


def done(lab: labs.Lab, words: str, *, code: int = 0) -> str:
    """Run a command line in the directory of the templates and return what it printed; it must end with ``code``."""
    ran = lab.ssh("head", f"cd templates && . ./image.sh && {words}", user="ada")
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout


def submitted(lab: labs.Lab, template: str, options: str = "", *, before: str = "", machine: str = "head") -> str:
    """Submit a template, wait for its end, and return its log. ``machine``: where it is submitted."""
    name = template.partition(".")[0]
    sbatch = f"--wait {SIZES} {options}"
    start = f"./{template} {sbatch}" if template.endswith(".sh") else f"sbatch {sbatch} {template}"
    done(lab, f"rm -f {name}-*.log")
    ran = lab.ssh(machine, f"cd templates && . ./image.sh && {before} {start}", user="ada")
    log = done(lab, f"cat {name}-*.log || true")
    assert ran.returncode == 0, ran.stdout + ran.stderr + log
    return log


def losses(log: str) -> dict[str, float]:
    """Return the losses that a training told, by step; it told some. Sums of another order differ a little."""
    found = {step: float(loss) for step, loss in LOSS.findall(log)}
    assert found, log
    return found


def alone(lab: labs.Lab, program: str, *, before: str = "") -> dict[str, float]:
    """Return the losses of one process without anything around it."""
    return losses(
        done(lab, f"{before} srun --container-image=$IMAGE --container-mounts=$PWD --container-workdir=$PWD {program}")
    )


def nodes(log: str) -> list[str]:
    """Return where the ranks were, in their order. Without a break between lines: print() writes that apart."""
    return [node for _, node in sorted(re.findall(r"rank (\d+) of \d+ on (node\d)", log))]


def test_the_template_of_torchrun_in_a_container_trains_on_two_nodes_as_one_process_does(templates: labs.Lab) -> None:
    files = {path.name for path in (content.ROOT / "roles/slurm_image/files/image/jobs").iterdir() if path.is_file()}
    assert set(templates.ssh("login1", f"ls {PLACE}", user="ada").stdout.split()) == files
    # As it was copied, but for one option: the image's name, processors and memory fit.
    ran = templates.ssh("login1", "cd templates && sbatch --wait --gpus-per-node=2 ddp-container.sbatch", user="ada")
    log = done(templates, "cat ddp-container-*.log || true")
    assert ran.returncode == 0, ran.stdout + ran.stderr + log

    assert nodes(log) == ["node1", "node1", "node2", "node2"]
    assert losses(log) == pytest.approx(alone(templates, "python3 train_ddp.py"), rel=1e-3)
    assert "torchrun-slurm: checked in " in log


@pytest.mark.night
def test_a_failure_that_is_held_is_looked_at_in_its_containers_on_all_nodes(templates: labs.Lab) -> None:
    lab = templates
    options = "--container-image=$IMAGE --container-mounts=$PWD --container-workdir=$PWD"
    failing = f"srun {options} torchrun-slurm --hold 1h --env kubeflow sh -c 'exit $((3 * RANK))'"
    lab.said(f"cat >templates/held.sbatch <<'END'\n#!/bin/sh\n{failing}\nEND")
    job = done(lab, "sbatch --mem=600M --time=10 --parsable --nodes=2 --output=held.log held.sbatch").strip()
    labs.until(lambda: "held until" in done(lab, "cat held.log || true"), lambda: done(lab, "cat held.log"))

    look = "sh -c 'grep ^VERSION_CODENAME /etc/os-release; pwd; id -un'"
    said = done(lab, f"job-exec {job} {look}")
    assert "first to fail: node2" in done(lab, "cat held.log")
    inside = ("VERSION_CODENAME=bookworm", "/", "ada")
    assert sorted(said.splitlines()) == sorted(f"{node}: {line}" for node in "01" for line in inside)
    assert done(lab, f"job-exec {job} -w node2 hostname").split() == ["node2"]
    # The node itself is of another release.
    assert "bookworm" not in lab.root("node2", "docker exec slurmd grep ^VERSION_CODENAME /etc/os-release")
    typed = ". /etc/os-release; echo in $(hostname) $VERSION_CODENAME; exit 4"
    shell = f"echo '{typed}' | script -qec 'job-shell {job} node2' /dev/null"
    assert "in node2 bookworm" in done(lab, shell, code=4)
    done(lab, f"scancel {job}")
    gone = f"job-exec: job {job} does not run. squeue --me"
    labs.until(lambda: done(lab, f"job-exec {job} true 2>&1 || true").strip() == gone)


#: What else needs nothing but PyTorch: how many ranks on which nodes, and the same by one process.
TRAINS = {
    "ddp-docker.sbatch": ("--gpus-per-node=2", ["node1", "node1", "node2", "node2"], "train_ddp.py"),
    "ddp-srun.sbatch": ("--gpus-per-node=2 --ntasks-per-node=2", ["node1"] * 2 + ["node2"] * 2, "train_ddp.py"),
    "megatron.sh": ("", ["node1", "node2"], "-m torch.distributed.run pretrain_gpt.py --micro-batch-size 2"),
}


@pytest.mark.parametrize("template", every_day(TRAINS, "megatron.sh"))
def test_a_template_trains_as_one_process_does(templates: labs.Lab, template: str) -> None:
    options, where, program = TRAINS[template]
    log = submitted(templates, template, options)

    assert nodes(log) == where
    assert losses(log) == pytest.approx(alone(templates, f"python3 {program}"), rel=1e-3)


@pytest.mark.night
def test_tasks_of_an_array_have_each_their_own_log_and_training(templates: labs.Lab) -> None:
    lab = templates
    # Two of four run at a time; one fills a node.
    log = submitted(lab, "array.sbatch", "--cpus-per-task=2")

    assert len(done(lab, "ls array-*-[0-3].log").split()) == 4
    assert len(nodes(log)) == 4
    assert set(nodes(log)) == {"node1", "node2"}
    for task, batch in enumerate((16, 32, 64, 128)):
        own = losses(done(lab, f"cat array-*-{task}.log"))
        assert own == pytest.approx(alone(lab, f"python3 train_ddp.py --batch {batch}"), rel=1e-3)


#: Makes of train_ddp.py one whose first turn waits within step 60 until it is told to stop, or is ended: there is no
#: moment to be missed. One process without anything around it is told nothing, and does not wait.
WAITS = (
    r's/^    step += 1$/&\n    while step == 60 and not last and not os.path.exists(os.getenv("STOP_FILE", "\/")):'
    r" time.sleep(0.2)/; s/^import os$/&, time/"
)
WAITING = ("s/train_ddp.py/waits.py/", "waits.py", "waits.py")
#: Steps of another training that is long enough to be disturbed, and to come to its end.
LONG = 400

#: Templates that train: what makes the training that long, what a worker's command line is, the same by one process.
BY_PYTORCH = {
    "ddp-container.sbatch": WAITING,
    "ddp-docker.sbatch": WAITING,
    "ddp-srun.sbatch": WAITING,
    "megatron.sh": (
        f"s/--train-iters 20/--train-iters {LONG}/; s/run=megatron-1/run=$RUN/",
        "pretrain_gpt.py",
        f"-m torch.distributed.run pretrain_gpt.py --train-iters {LONG}",
    ),
}
BY_FRAMEWORKS = {
    "deepspeed.sbatch": (
        f"s/--zero 2/& --steps {LONG}/",
        "train_deepspeed.py",
        f"-m torch.distributed.run train_deepspeed.py --zero 0 --steps {LONG}",
    ),
    "accelerate.sbatch": (
        f"s/accelerate.py 20/accelerate.py {LONG}/",
        "train_accelerate.py",
        f"train_accelerate.py {LONG}",
    ),
    "tensorboard.sbatch": (
        f"/^#SBATCH/s/--nodes=1/--nodes=2/; s/train_ddp.py /&--steps {LONG} /",
        "train_ddp.py",
        f"train_ddp.py --steps {LONG}",
    ),
    # An epoch has ten steps.
    "lightning.sbatch": (
        f"s/lightning.py 2/lightning.py {LONG // 10}/",
        "train_lightning.py",
        f"train_lightning.py {LONG // 10}",
    ),
}


def state(lab: labs.Lab, job: str) -> str:
    """Return a job's state and exit code, as accounting has them of its last turn."""
    return lab.said(f"sacct --noheader --parsable2 --allocations --jobs={job} --format=State,ExitCode")


class Long:
    """A template whose training is long enough to be disturbed."""

    def __init__(self, lab: labs.Lab, template: str, before: str = "") -> None:
        self.lab, self.template, self.before = lab, template, before
        longer, self.worker, self.program = {**BY_PYTORCH, **BY_FRAMEWORKS}[template]
        self.name = f"long-{template.partition('.')[0]}"
        done(lab, f"sed '{WAITS}' train_ddp.py >waits.py; sed '{longer}' {template} >{self.name}; chmod +x {self.name}")

    def started(self, run: str) -> str:
        """Submit it, and wait until it has saved; return its number."""
        shell = self.template.endswith(".sh")
        start = f"RUN={self.name}-{run} ./{self.name}" if shell else "sbatch"
        script = "" if shell else self.name
        options = f"{SIZES} --job-name={self.name} --output={self.name}-{run}.log --parsable"
        job = done(self.lab, f"{self.before} {start} {options} {script}").split()[-1]
        told = ("step 50", "iteration 50")
        labs.until(lambda: any(word in self.log(run) for word in told), lambda: self.log(run))
        return job

    def log(self, run: str) -> str:
        """Return what it has printed."""
        return done(self.lab, f"cat {self.name}-{run}.log 2>/dev/null || true")

    def goes_on(self, *, told: bool = False) -> None:
        """Have it requeued: each loss of its second turn is that of a training that nobody has disturbed.

        An optimizer that has forgotten what it had is seen in the first of them, and half of them differ by a tenth.

        Args:
            told: it is told that its time is short, saves and puts itself back; else as after a node's failure.
        """
        lab = self.lab
        job = self.started("again")
        lab.said(f"scancel --batch --signal=USR1 {job}" if told else f"scontrol requeue {job}")
        lab.requeued(job)
        labs.until(lambda: state(lab, job) == "COMPLETED|0:0", lambda: state(lab, job) + self.log("again"))
        log = self.log("again")
        _, resumed, second = log.partition("\nresumed")
        assert resumed, log
        assert set(nodes(log)) == {"node1", "node2"}
        undisturbed, found = alone(lab, f"python3 {self.program}", before=self.before), losses(second)
        assert list(found)[-1] == list(undisturbed)[-1]
        if told:
            stopped = re.findall(r"^stopped at step (\d+)", log, re.MULTILINE)
            assert len(stopped) == 1
            assert stopped == re.findall(r"^resumed at step (\d+)", log, re.MULTILINE)
        assert found == pytest.approx({step: undisturbed[step] for step in found}, rel=1e-3, abs=2e-6)

    def ends_with_a_worker(self) -> None:
        """Kill a worker of its second node: the job fails."""
        lab = self.lab
        job = self.started("killed")
        lab.root("node2", f"pkill -KILL -f '^[^ ]*python3 (-u )?{self.worker}'")
        labs.until(lambda: state(lab, job).startswith("FAILED|"), lambda: state(lab, job))


def test_a_training_that_is_told_to_stop_puts_itself_back_and_goes_on_to_the_same_losses(templates: labs.Lab) -> None:
    Long(templates, "ddp-container.sbatch").goes_on(told=True)


# For every day: one that is told to stop, which is requeued as well, by itself.
@pytest.mark.night
@pytest.mark.parametrize("template", BY_PYTORCH)
def test_a_training_that_is_requeued_goes_on_with_the_losses_that_it_would_have_had(
    templates: labs.Lab, template: str
) -> None:
    Long(templates, template).goes_on()


@pytest.mark.night
@pytest.mark.parametrize("template", BY_PYTORCH)
def test_a_training_ends_with_a_worker_that_is_killed(templates: labs.Lab, template: str) -> None:
    Long(templates, template).ends_with_a_worker()


#: What the frameworks' templates need, from this computer's index of packages. PyTorch is in the image already.
FRAMEWORKS = ("deepspeed", "accelerate", "lightning", "tensorboard", "jupyterlab")
TORCH = "torch==2.13.0"
#: Later ones want a later Python than the image's, which is Debian 12's 3.11.2.
OLDER = ("soupsieve<2.8",)


def wheels() -> Path:
    """Return a directory with the frameworks' wheels, kept in the cache. DeepSpeed's is made here, by PyTorch."""
    kept = labs.cache() / "tests" / f"frameworks-{'-'.join(FRAMEWORKS)}-{TORCH}"
    if not kept.is_dir():
        fresh = kept.with_name(f"{kept.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        labs.run([sys.executable, "-m", "venv", fresh / "venv"])
        pip = [fresh / "venv/bin/pip", "--quiet"]
        labs.run([*pip, "install", TORCH, "numpy", "setuptools", "wheel", "packaging", "ninja"])
        # Its operators are compiled where they are used.
        build = [*pip, "wheel", "--no-build-isolation", "--wheel-dir", fresh / "wheels", TORCH, *FRAMEWORKS, *OLDER]
        labs.run(build, env={"DS_BUILD_OPS": "0"})
        for unwanted in (*fresh.glob("wheels/torch-*"), *fresh.glob("wheels/numpy-*")):
            unwanted.unlink()
        shutil.rmtree(fresh / "venv")
        fresh.rename(kept)
    return kept / "wheels"


@pytest.fixture(scope="module")
def frameworks(templates: labs.Lab) -> str:
    """The user has built an image with all frameworks, by docker build in a job; its name."""
    lab = templates
    home = lab.directory / "home/ada/templates"
    shutil.copytree(wheels(), home / "wheels")
    # Of the user, who removes them.
    labs.run(["chown", "--recursive", "--reference", home, home / "wheels"])
    (home / "Dockerfile").write_text(
        f"FROM {done(lab, 'echo $IMAGE').strip()}\n"
        "RUN apt-get update -q && apt-get install -qy --no-install-recommends openssh-server openssh-client pdsh\n"
        "RUN --mount=type=bind,source=wheels,target=/wheels"
        f" python3 -m pip install --no-index --no-cache-dir --find-links /wheels {' '.join(FRAMEWORKS)}\n"
    )
    done(lab, "srun --mem=2000 docker build -t frameworks:1 . 2>&1")
    return "IMAGE=frameworks:1"


@pytest.mark.night
@pytest.mark.parametrize(
    ("template", "program"),
    [
        ("deepspeed.sbatch", "-m torch.distributed.run train_deepspeed.py --zero 0"),
        ("accelerate.sbatch", "train_accelerate.py"),
        ("lightning.sbatch", "train_lightning.py"),
    ],
)
def test_a_template_of_a_framework_trains_as_one_process_does(
    templates: labs.Lab, frameworks: str, template: str, program: str
) -> None:
    log = submitted(templates, template, before=f"export {frameworks};")

    assert nodes(log) == ["node1", "node2"]
    assert losses(log) == pytest.approx(
        alone(templates, f"python3 {program}", before=f"export {frameworks};"), rel=1e-3
    )


@pytest.mark.night
@pytest.mark.parametrize("template", BY_FRAMEWORKS)
def test_a_frameworks_training_goes_on_where_it_was_and_ends_with_a_worker_that_is_killed(
    templates: labs.Lab, frameworks: str, template: str
) -> None:
    training = Long(templates, template, before=f"export {frameworks};")
    training.goes_on()
    training.ends_with_a_worker()


@pytest.mark.night
@pytest.mark.parametrize(
    ("how", "says"), [("--zero 1", "ZeRO stage 1"), ("--zero 3", "ZeRO stage 3"), ("--pipeline 2", "2 pipeline stages")]
)
def test_deepspeed_shares_out_what_it_is_told_to(templates: labs.Lab, frameworks: str, how: str, says: str) -> None:
    done(templates, f"sed 's/--zero 2/{how}/' deepspeed.sbatch >shared.sbatch")

    log = submitted(templates, "shared.sbatch", "--job-name=shared", before=f"export {frameworks};")

    # As DeepSpeed's engine has it on each worker; without a break between lines as in nodes().
    assert log.count(f"shared out: {says}") == 2
    assert nodes(log) == ["node1", "node2"]
    wanted = "-m torch.distributed.run train_deepspeed.py --zero 0"
    assert losses(log) == pytest.approx(alone(templates, f"python3 {wanted}", before=f"export {frameworks};"), rel=1e-3)


@pytest.mark.night
@pytest.mark.parametrize(
    ("template", "shown"),
    [("tensorboard.sbatch", "<title>TensorBoard</title>"), ("notebook.sbatch", "<title>JupyterLab</title>")],
)
def test_a_page_is_there_by_the_address_that_only_the_user_can_read(
    templates: labs.Lab, frameworks: str, template: str, shown: str
) -> None:
    lab, name = templates, template.partition(".")[0]
    long = "sed -i 's/train_ddp.py /train_ddp.py --steps 1000000 /' tensorboard.sbatch"
    job = done(lab, f"{long}; export {frameworks}; sbatch {SIZES} --parsable {template}").strip()
    try:
        labs.until(lambda: "ssh -L" in done(lab, f"cat {name}-{job}.url || true"), "it does not start")
        told = done(lab, f"stat --format=%a {name}-{job}.url; cat {name}-{job}.url").split()
        port, node = told[3].split(":")[:2]
        path = told[-1].partition(f"localhost:{port}")[2]
        page = f"curl --silent --location http://{node}:{port}"
        labs.until(lambda: shown in done(lab, f"{page}{path} || true"), lambda: done(lab, f"cat {name}-{job}.*"))
        assert told[0] == "600"
        assert shown not in done(lab, f"{page} || true"), "without what stands there nothing is seen"
        if name == "notebook":
            seen_by_ssh(lab, " ".join(told[1:4]), told[-1], shown)
            # Whatever is wrong with it, the job tells.
            lab.root(node, "pkill -KILL -f '^[^ ]*python[0-9.]* [^ ]*jupyter-lab '")
            labs.until(lambda: state(lab, job).startswith("FAILED|"), lambda: state(lab, job))
    finally:
        lab.said(f"scancel --full {job} || true")


def seen_by_ssh(lab: labs.Lab, printed: str, address: str, shown: str) -> None:
    """Fetch a page as its user does, from this computer, by the printed line: ssh -L PORT:NODE:PORT HOST."""
    words = printed.rstrip(",").split()
    assert (words[0], words[1]) == ("ssh", "-L")
    port = words[2].split(":")[0]
    *command, target, _ = map(str, lab.entering("head", "", user="ada"))
    # On a port of this computer that is free, whatever else runs on it.
    here = free_port()
    tunnel = subprocess.Popen([*command, "-N", "-L", f"{here}{words[2].removeprefix(port)}", target])
    try:
        page = ["curl", "--silent", "--location", address.replace(f":{port}/", f":{here}/")]
        labs.until(lambda: shown in labs.run(page, check=False).stdout, "it is not there")
    finally:
        tunnel.terminate()
        tunnel.wait()


PRINTED = Path(__file__).parents[2] / "unit/seed_scripts"

#: Of a guide to DeepSpeed in containers of several machines: its files by what they are called there, and what a reader
#: changes in each. Its base image and the download of Python are stood in for; what it has the reader install in the
#: containers (requirements.txt, openssh-server) is in the image that stands for them.
GUIDE: dict[str, tuple[str, dict[str, str]]] = {
    "Dockerfile": (
        "deepspeed.Dockerfile",
        {
            "FROM nvidia/cuda:11.7.1-devel-ubuntu22.04\n": "FROM frameworks:1\n",
            "RUN wget https://www.python.org/ftp/python/3.10.6/Python-3.10.6.tgz && \\\n"
            "  tar -zvxf Python-3.10.6.tgz && cd Python-3.10.6 && \\\n"
            "  ./configure --enable-optimizations && make -j 4 && make install\n": "RUN python3 --version\n",
        },
    ),
    "hostfile": ("deepspeed_hostfile", {"manager ": "node1 ", "worker ": "node2 "}),
    "ds_config.json": ("ds_config.json", {}),
    "train.sh": ("deepspeed_train.sh", {}),
}


@pytest.mark.night
def test_a_guides_host_file_and_command_train_as_they_are_printed(templates: labs.Lab, frameworks: str) -> None:
    lab = templates
    lab.said("mkdir -p templates/guide/src")
    for name, (printed, changes) in GUIDE.items():
        text = (PRINTED / printed).read_text(encoding="utf-8")
        for was, here in changes.items():
            assert text.count(was) == 1, was
            text = text.replace(was, here)
        lab.said(f"cat >templates/guide/{name} <<'END OF FILE'\n{text}END OF FILE")
    program = (Path(__file__).parent / "jobs/train_bash.py").read_text(encoding="utf-8")
    lab.said(f"cat >templates/guide/src/train_bash.py <<'END OF FILE'\n{program}END OF FILE")
    done(lab, "cd guide && srun --mem=1500 docker build -t llm:1 . 2>&1")

    # As docs/jobs/deepspeed.md has it for docker compose, keys, hosts file and sshd.
    both = "--mem=1200M --container-image=llm:1 --container-mounts=$PWD --container-workdir=$PWD"
    # Without a word of torchrun-slurm's its workers would meet at node1's first address, that of its Docker's bridge.
    by_ssh = f'srun --nodes=2 --ntasks-per-node=1 {both} torchrun-slurm --env ssh --output-dir "$PWD" bash train.sh'
    log = done(lab, f"cd guide && {by_ssh} 2>&1")
    one = "s/deepspeed --hostfile hostfile/python3 -m torch.distributed.run/; s/batch_size 4/batch_size 8/"
    alone_ = done(lab, f"cd guide && sed -i '{one}' train.sh && srun {both} bash train.sh")

    assert "there is no half precision on processors" in log
    assert nodes(log) == ["node1", "node2"]
    assert losses(log) == pytest.approx(losses(alone_), rel=1e-3)
    assert losses(log)["10"] < losses(log)["1"]
