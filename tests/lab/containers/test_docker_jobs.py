"""docker in a job: the template of a Megatron training runs as it was printed, and so does what people do beside it.

Everything as an ordinary user, in no group of an engine's. GPUs are device files; the image's nvidia-smi counts them.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import labs
import pytest

HERE = Path(__file__).parent
SEEDS = HERE.parents[1] / "unit/seed_scripts"

#: What a site changes in the template: paths, partition, excluded names and sizes; its program is a stand-in.
CHANGED = {
    "#SBATCH --partition=TEST1 ": "#SBATCH --partition=batch ",
    "#SBATCH --exclude=g[01-86,88-89,91] ": "##SBATCH --exclude=none ",
    "#SBATCH --gres=gpu:8 ": "#SBATCH --gres=gpu:2 ",
    "#SBATCH --cpus-per-task=64 ": "#SBATCH --cpus-per-task=1 ",
    "#SBATCH --mem=1000G ": "#SBATCH --mem=500M ",
    'host_workspace="/home/test/test06/qzk/"': 'host_workspace="/home/ada/megatron/"',
    "--vocab-size 151936": "--vocab-size 128",
    "--num-layers 28": "--num-layers 2",
    "--hidden-size 1536": "--hidden-size 32",
    "--num-attention-heads 16": "--num-attention-heads 4",
    "--seq-length 4096": "--seq-length 16",
    "--max-position-embeddings 4096": "--max-position-embeddings 16",
    "--micro-batch-size 4": "--micro-batch-size 2",
    "--global-batch-size 512": "--global-batch-size 16",
    "--train-iters 500000": "--train-iters 5",
    "--save-interval 1000": "--save-interval 5",
}

#: Of the site's own image; everything else that needs one is built on it, as a user would.
BASE = "FROM {base}\n"
NVIDIA_SMI = '#!/bin/sh\nfor gpu in /dev/nvidia[0-9]*; do echo "NVIDIA Simulated"; done\n'
DOCKERFILE = BASE + "COPY nvidia-smi /usr/local/bin/\n"

#: What needs more than one number: files of others, users, and apt with its sandbox, from a repository in the image.
MANY_NUMBERS = (
    BASE
    + """\
RUN mkdir -p /pkg/DEBIAN /pkg/srv /repo && echo probe >/pkg/srv/probe && chown -R 33:33 /pkg/srv && \\
    printf 'Package: probe\\nVersion: 1\\nArchitecture: all\\nMaintainer: a\\nDescription: a\\n' \\
      >/pkg/DEBIAN/control && \\
    dpkg-deb --build /pkg /repo/probe.deb && cd /repo && \\
    (dpkg-deb -f probe.deb; stat --printf 'Filename: ./probe.deb\\nSize: %s\\n' probe.deb; \\
     echo SHA256: $(sha256sum probe.deb | cut -d' ' -f1)) >Packages && \\
    rm -rf /etc/apt/sources.list* && echo 'deb [trusted=yes] file:/repo ./' >/etc/apt/sources.list && \\
    apt-get update && apt-get install -y probe && useradd -m worker && su worker -c 'touch ~/mine'
USER worker
"""
)


def write(lab: labs.Lab, path: str, text: str, user: str = "ada") -> None:
    """Write a file into a user's home."""
    lab.said(f"mkdir -p {Path(path).parent}; cat >{path} <<'END OF FILE'\n{text}END OF FILE", user=user)


def base_of(lab: labs.Lab) -> str:
    """Return the image that the nodes have of the site's."""
    return lab.said("srun --nodelist=node1 podman images --quiet --filter readonly=true").split()[0]


def left(lab: labs.Lab, user: str = "ada") -> str:
    """Return what of a user's is on the nodes: processes, mounts, and directories of jobs."""
    look = f"pgrep -u {user} -l; findmnt -rno TARGET | grep clusterctl/jobs; ls /var/lib/clusterctl/jobs"
    found = "".join(lab.root(node, f"{look}; true") for node in ("node1", "node2"))
    return "\n".join(line for line in found.splitlines() if line and not line.endswith(":"))


def job(lab: labs.Lab, script: str, *options: str, user: str = "ada") -> subprocess.CompletedProcess[str]:
    """Run a script in a job of a user's, and wait for its end."""
    words = ["srun", "--time=15", *options, "bash", "-c", script]
    return lab.ssh("head", f"mkdir -p megatron && cd megatron && {shlex.join(words)}", user=user)


@pytest.fixture(scope="module")
def built(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    """A lab whose user has built the template's image in a job on one node, and has the stand-in of its program."""
    lab = provisioned_lab
    lab.said("mkdir -p megatron")
    for name, text in {
        "pretrain_gpt.py": (HERE / "jobs/pretrain_gpt.py").read_text(encoding="utf-8"),
        "nvidia-smi": NVIDIA_SMI,
        "Dockerfile": DOCKERFILE.format(base=base_of(lab)),
    }.items():
        write(lab, f"megatron/{name}", text)
    lab.said("chmod +x megatron/nvidia-smi")
    done = job(lab, "docker build -t megatron_pytorch:latest .", "--nodelist=node1")
    assert done.returncode == 0, done.stdout + done.stderr
    yield lab
    lab.said("rm -rf megatron .local/share/clusterctl")


def test_the_template_of_a_megatron_training_runs_with_its_own_options(built: labs.Lab) -> None:
    text = (SEEDS / "megatron_docker.slurm").read_text(encoding="utf-8")
    for printed, here in CHANGED.items():
        assert text.count(printed) == 1, printed
        text = text.replace(printed, here)
    write(built, "megatron/megatron_docker.slurm", text)

    submit = "cd megatron && sbatch --wait megatron_docker.slurm; cat output_*.log error_*.log"
    done = built.ssh("head", submit, user="ada")

    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    for node in (0, 1):
        assert f"Node Info: Rank {node}/2 | Master: node1:6420 | GPUs: 2" in said
    for rank in range(4):
        assert f"rank {rank}/4 on node{rank // 2 + 1}, local rank {rank % 2}" in said
    assert ", from one process " in said
    assert said.count("--privileged gives no more than this job has") == 2
    built.said("test -f megatron/data/Distill-Qwen-1.5B-OpenR1-Math-94k/checkpoints/iter_0000005.pt")


COMPOSE = """
docker network create --driver=overlay --attachable test-net
docker compose up -d --build
echo "gpus $(docker exec llm sh -c 'ls /dev | grep -c ^nvidia[0-9]')"
docker exec llm touch /home/user/code/written
size='stat --file-system --format=%b /dev/shm'
[ "$(docker exec llm $size)" = "$($size)" ] && echo "shm the job's"
echo "policy $(docker inspect llm --format '{{.HostConfig.RestartPolicy.Name}}')"
kill -9 $(docker inspect llm --format '{{.State.Pid}}')
until docker exec llm true 2>/dev/null; do sleep 0.2; done
echo "restarts $(docker inspect llm --format '{{.RestartCount}} {{.State.Status}}')"
"""


def test_services_of_a_compose_file_run_with_the_gpus_that_they_reserve_and_end_with_the_job(built: labs.Lab) -> None:
    write(built, "megatron/docker-compose.yml", (SEEDS / "docker-compose.yml").read_text(encoding="utf-8"))
    built.said("mkdir -p megatron/code")

    done = job(built, COMPOSE, "--gres=gpu:1", "--nodelist=node1")

    assert done.returncode == 0, done.stdout + done.stderr
    wanted = {"gpus 1", "policy always", "restarts 1 running", "shm the job's"}
    assert wanted <= set(done.stdout.splitlines()), done.stdout + done.stderr
    assert built.said("stat --format=%U megatron/code/written") == "ada"
    labs.until(lambda: not left(built), lambda: left(built))


def test_an_image_whose_files_are_of_many_users_is_built_in_a_job_and_found_from_another_node(built: labs.Lab) -> None:
    write(built, "megatron/Dockerfile", MANY_NUMBERS.format(base=base_of(built)), user="ben")

    done = job(built, "docker build --quiet -t own/many:1 .", "--nodelist=node1", user="ben")
    assert done.returncode == 0, done.stdout + done.stderr
    # What the nodes have anyway is not kept again.
    assert int(built.said("du -sm .local/share/clusterctl | cut -f 1", user="ben")) < 50
    look = "stat --format=%u /srv/probe /home/worker/mine"
    step = built.ssh("head", f"srun --nodelist=node2 --container-image=own/many:1 {look}", user="ben")
    script = f"docker run --rm own/many:1 {look}; docker rmi own/many:1; docker run --rm own/many:1 true"
    done = job(built, script, "--nodelist=node2", user="ben")

    assert step.returncode == 0, step.stdout + step.stderr
    assert done.stdout.split()[:2] == ["33", "1000"], done.stdout + done.stderr
    assert done.returncode == 125
    assert "no image own/many:1 is here, and docker.io does not answer from node2" in done.stderr
    built.said("rm -r megatron .local/share/clusterctl", user="ben")


#: A container's words, how it ends, and what is told. What cannot be had is refused in a unit test
#: (test_docker_in_jobs).
ENDS = [
    ("megatron_pytorch sh -c 'exit 7'", 7, ""),
    ("megatron_pytorch sh -c 'kill -9 $$'", 137, ""),
    ("megatron_pytorch pyhton3", 127, "exec pyhton3 failed: No such file or directory"),
    (
        "--gpus all megatron_pytorch sh -c 'echo $(ls /dev | grep ^nvidia[0-9]) of $CUDA_VISIBLE_DEVICES'",
        0,
        "nvidia1 of 0",
    ),
    ("--gpus all megatron_pytorch torchrun-slurm --dry-run train.py", 0, "--nproc_per_node 1"),
    ("-v /home/ben:/b megatron_pytorch ls /b", 2, "Permission denied"),
]


def test_how_a_container_ends_is_told(built: labs.Lab) -> None:
    # The first GPU is another job's.
    script = "export SLURM_STEP_GPUS=1\n"
    for words, _, _ in ENDS:
        script += f"echo; echo '==='; docker run --rm {words} 2>&1; echo \"ended $?\"\n"

    done = job(built, script, "--gres=gpu:1", "--nodelist=node1")

    found = done.stdout.split("===")[1:]
    assert len(found) == len(ENDS), done.stdout + done.stderr
    for (words, code, says), told in zip(ENDS, found, strict=True):
        assert f"ended {code}" in told, (words, told)
        assert says in told, (words, told)


def test_a_signal_reaches_the_program_and_a_cancelled_job_leaves_nothing_behind(built: labs.Lab) -> None:
    script = "cd /root/megatron; trap 'echo told >told; exit 3' TERM; touch started; while :; do sleep 0.1; done\n"
    write(built, "megatron/program", script)
    run = "srun docker run --rm -v $HOME:/root megatron_pytorch bash /root/megatron/program"
    lines = (
        "#!/bin/bash",
        "docker run -d megatron_pytorch sleep 600",
        run,
        "echo $? >megatron/ended",
        "srun sleep 600\n",
    )
    write(built, "megatron/long.sh", "\n".join(lines))
    number = built.said("sbatch --parsable --nodelist=node2 --output=megatron/long.log megatron/long.sh")

    def there(name: str) -> None:
        look = f"cat /home/ada/megatron/{name} && echo there"
        log = "cat /home/ada/megatron/long.log"
        labs.until(lambda: "there" in built.root("head", look, check=False), lambda: built.root("head", log))

    there("started")
    # Of the steps only. All processes of a step get a signal where Slurm has no control groups to know its tasks by; a
    # plain scancel wakes them first, and Podman passes that on by a process that the next signal ends.
    built.said(f"scancel --signal=TERM {number}")
    there("ended")
    assert built.said("cat megatron/told megatron/ended").split() == ["told", "3"]

    built.said(f"scancel {number}")
    labs.until(lambda: not left(built), lambda: left(built))


def test_where_users_log_in_docker_runs_in_a_job_and_what_it_builds_is_found_by_name(built: labs.Lab) -> None:
    write(built, "logged/Dockerfile", f"FROM {base_of(built)}\nRUN echo built >/where\n")

    done = built.ssh("login1", "cd logged && docker build --quiet -t logged:1 . && docker push logged:1", user="ada")

    assert "docker: in a job of one node" in done.stderr
    assert "logged:1 names no registry" in done.stderr
    assert "/home/ada/.local/share/clusterctl/images, where all your jobs find it" in done.stderr
    assert done.returncode == 125, done.stdout + done.stderr
    assert built.said("srun --quiet --nodes=2 --container-image=logged:1 cat /where").split() == ["built", "built"]
    built.said("rm -rf logged; docker rmi logged:1")
    # Root's is the machine's own.
    assert "Server:" in built.root("login1", "docker version")
