"""The mistakes of public templates are found in a job script, three forms of each, and none in scripts without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from provision.cli.main import cli
from provision.slurm.jobs.lint import RULES, findings

CLEAN = sorted((Path(__file__).parent / "job_scripts").iterdir())

DDP = (Path(__file__).parent / "job_scripts" / "ddp.sh").read_text(encoding="utf-8")
HEAD = (
    "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --mem=0 --time=30\nexport OMP_NUM_THREADS=8\n"
)
PORT = "MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))\n"
ADDRESS = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
MEET = "--master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"
TORCHRUN = f"torchrun --nnodes=2 --node-rank=$SLURM_NODEID --nproc-per-node=gpu {MEET}"
SRUN = "srun --kill-on-bad-exit=1"
DOCKER = "docker run --ulimit memlock=-1 --ipc=host --device /dev/infiniband"
IMAGE = "team/train:2.13.0"


def job(*lines: str) -> str:
    """Return a batch script of two nodes without a mistake but for those of its lines."""
    return HEAD + ADDRESS + PORT + "\n".join(lines) + "\n"


def sbatch(options: str, *lines: str) -> str:
    """Return a batch script with other options."""
    return f"#!/bin/bash\n#SBATCH {options}\n" + "\n".join(lines or (f"{SRUN} python train.py",)) + "\n"


#: Each mistake: scripts, and what stands in the line that is named.
MISTAKES: dict[str, list[tuple[str, str]]] = {
    "fixed-port": [
        (job("export MASTER_PORT=29500", f"{SRUN} python train.py"), "MASTER_PORT=29500"),
        (job(f"{SRUN} bash -c '{TORCHRUN.replace('$MASTER_PORT', '12355')} train.py'"), "--master-port=12355"),
        (job("PORT=6000", f"{SRUN} torchrun --nnodes=2 --rdzv_backend c10d --rdzv_id $SLURM_JOB_ID \\",
             "  --rdzv_endpoint $MASTER_ADDR:${PORT} train.py"), "--rdzv_endpoint"),
        (job(f"{SRUN} bash -c '{TORCHRUN.replace(' --master-port=$MASTER_PORT', '')} train.py'"), "torchrun"),
        (sbatch("-N2 --mem=0 -t 9 --export=ALL,MASTER_PORT=1234"), "--export"),
    ],
    "port-per-node": [
        (job(f"{SRUN} bash -c 'export MASTER_PORT=$((RANDOM + 10000)); python train.py'"), "RANDOM"),
        (job("cat >run-$SLURM_JOB_ID.sh <<END", "#!/bin/bash", "MASTER_PORT=\\$(shuf -i 20000-30000 -n 1)",
             "END", f"{SRUN} bash run-$SLURM_JOB_ID.sh"), "shuf"),
        (job(f"{SRUN} bash -c 'torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-id=$(uuidgen)"
             " --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT train.py'"), "uuidgen"),
        ("#!/bin/bash\n# what each task runs\nexport OMP_NUM_THREADS=4\nMASTER_PORT=$RANDOM\npython train.py\n",
         "=$RANDOM"),
    ],
    "unclosed": [
        (job(f"{SRUN} python train.py", 'echo "done'), '"done'),
        (job(f"{SRUN} python train.py --name 'mine", "echo done"), "'mine"),
        (job(f"{SRUN} python train.py", "cat <<END", "done", " END"), "<<END"),
        (job(f"{SRUN} python train.py", 'echo "$(date) and more'), '"$(date)'),
    ],
    "hostname-endpoint": [
        (job("export MASTER_ADDR=$(hostname)", f"{SRUN} python train.py"), "$(hostname)"),
        (job(f"{SRUN} bash -c 'torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID"
             " --rdzv-endpoint=`hostname -s`:$MASTER_PORT train.py'"), "hostname -s"),
        (job("export MASTER_ADDR=$SLURM_JOB_NODELIST", f"{SRUN} python train.py"), "=$SLURM_JOB_NODELIST"),
        (job(f"{SRUN} bash -c '{TORCHRUN.replace('$MASTER_ADDR', 'localhost')} train.py'"), "localhost"),
        (job("export MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR", f"{SRUN} python train.py"), "LAUNCH_NODE"),
    ],
    "squared-workers": [
        (sbatch("-N 2 --ntasks-per-node=8 --mem=0 -t 9", ADDRESS + PORT + "export OMP_NUM_THREADS=8",
                f"{SRUN} bash -c '{TORCHRUN} train.py'"), "--ntasks-per-node=8"),
        (job(f"{SRUN} --ntasks-per-node=4 bash -c '{TORCHRUN.replace('=gpu', '=4')} train.py'"), "srun"),
        (sbatch("--nodes=2 --ntasks=16 --mem=0 -t 9", "export OMP_NUM_THREADS=8",
                f"{SRUN} deepspeed --no_ssh --hostfile hosts-$SLURM_JOB_ID train.py"), "--ntasks=16"),
        (sbatch("-N1 -n4 --mem=0 -t 9", "export OMP_NUM_THREADS=8",
                f"{SRUN} accelerate launch --num_processes 4 train.py"), "-n4"),
    ],
    "hidden-failure": [
        (job(f"{SRUN} python train.py | tee train-$SLURM_JOB_ID.log"), "| tee"),
        (job(f"{SRUN} --container-image={IMAGE} python train.py 2>&1 |", "  tee log-$SLURM_JOB_ID"),
         "python train.py"),
        (job(f"{SRUN} bash -c 'python train.py |& ts'"), "|& ts"),
        (job("bash launch.sh | grep -v Warning"), "launch.sh"),
    ],
    "hanging-step": [
        (job("srun python train.py"), "srun python"),
        (job("srun --kill-on-bad-exit=0 python train.py"), "=0"),
        (job("export SLURM_KILL_BAD_EXIT=0", "srun python train.py"), "SLURM_KILL_BAD_EXIT=0"),
        (sbatch("-n 8 --mem=0 -t 9", "srun -l -K0 --mpi=pmix ./train"), "-K0"),
    ],
    "lost-work": [
        (sbatch("-N2 --mem=0 --time=2-00:00:00"), "--time=2-"),
        (sbatch("-N2 --mem=0 --time=10:00:00 --requeue --signal=B:USR1@120"), "--signal=B:USR1@120"),
        (sbatch("-N2 --mem=0 --time=10:00:00 --signal=B:SIGTERM@120", "trap 'touch stop' TERM",
                f"{SRUN} python train.py"), "srun"),
        (sbatch("-N2 --mem=0"), "srun"),
    ],
    "ungranted-gpus": [
        (job(f"{SRUN} {DOCKER} --gpus all {IMAGE} python train.py"), "--gpus all"),
        (job(f"{SRUN} podman run --device nvidia.com/gpu=all --ipc host --ulimit memlock=-1"
             f" -v /dev/infiniband:/dev/infiniband {IMAGE} python train.py"), "gpu=all"),
        (job(f'{SRUN} bash -c "', "docker run --rm \\\\", " --ipc=host --ulimit memlock=-1 \\\\", " --privileged \\\\",
             f' {IMAGE} python train.py"'), "--privileged"),
        (job(f"{SRUN} {DOCKER} --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all {IMAGE} python train.py"), "DEVICES=all"),
    ],
    "container-limits": [
        (job(f"{SRUN} docker run --network host {IMAGE} python train.py"), "docker"),
        (job(f"{SRUN} podman run --ulimit memlock=-1 --device /dev/infiniband {IMAGE} python train.py"), "podman"),
        (job(f"{SRUN} docker run --shm-size 64g --device=/dev/infiniband/uverbs0 {IMAGE} python train.py"), "shm-size"),
        (job(f"{SRUN} docker run --shm-size 64g --ulimit memlock=-1 {IMAGE} python train.py"), "memlock"),
    ],
    "baked-nccl": [
        (job("export NCCL_SOCKET_IFNAME=eth0", f"{SRUN} python train.py"), "=eth0"),
        (job(f"NCCL_IB_GID_INDEX=3 NCCL_DEBUG=WARN {SRUN} python train.py"), "GID_INDEX=3"),
        (job(f"{SRUN} {DOCKER} -e NCCL_IB_HCA=mlx5_0,mlx5_1 {IMAGE} python train.py"), "NCCL_IB_HCA"),
        (job(f"{SRUN} --export=ALL,GLOO_SOCKET_IFNAME=ens3 python train.py"), "GLOO"),
    ],
    "left-from-debugging": [
        (job("export NCCL_IB_DISABLE=1", f"{SRUN} python train.py"), "IB_DISABLE"),
        (job(f"{SRUN} {DOCKER} --env NCCL_P2P_DISABLE=1 {IMAGE} python train.py"), "P2P"),
        (job(f"{SRUN} env CUDA_LAUNCH_BLOCKING=1 python train.py"), "BLOCKING"),
        (sbatch("-N2 --mem=0 -t 9 --export=ALL,TORCH_DISTRIBUTED_DEBUG=DETAIL"), "DETAIL"),
    ],
    "one-nccl-log": [
        (job("export NCCL_DEBUG=INFO", f"{SRUN} python train.py"), "NCCL_DEBUG=INFO"),
        (job("export NCCL_DEBUG=INFO NCCL_DEBUG_FILE=nccl.log", f"{SRUN} python train.py"), "nccl.log"),
        (job(f"{SRUN} {DOCKER} -e NCCL_DEBUG=TRACE {IMAGE} python train.py"), "TRACE"),
        (job("export NCCL_DEBUG_FILE=/logs/%h.txt", f"{SRUN} python train.py"), "%h.txt"),
    ],
    "moving-tag": [
        (job(f"{SRUN} {DOCKER} pytorch/pytorch:latest python train.py"), ":latest"),
        (job(f"{SRUN} --container-image=nvcr.io#nvidia/pytorch python train.py"), "nvcr.io"),
        (job("image=team/train:nightly", f"{SRUN} apptainer exec docker://$image python train.py"), "apptainer"),
        (job("IMAGE=megatron:dev", f'{SRUN} bash -c "{DOCKER} $IMAGE python train.py"'), "docker run"),
    ],
    "cpus-not-inherited": [
        (sbatch("-N2 --mem=0 -t 9 --cpus-per-task=8"), "srun"),
        (sbatch("-N2 --mem=0 -t 9 -c 8", f"srun -K1 --container-image={IMAGE} python train.py"), "srun"),
        (sbatch("-N2 --mem=0 -t 9 -c8", "nvidia-smi", f"{SRUN} --ntasks=2 bash -c 'python train.py'"), "srun"),
    ],
    "one-thread": [
        (DDP.replace(" OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / 8))", ""), "srun"),
        (sbatch("--gpus=4 --mem=9G -t 9", "torchrun --standalone --nproc-per-node=4 train.py"), "torchrun"),
        (sbatch("-c 32 --gpus=4 --mem=9G -t 9", "export OMP_NUM_THREADS=1", "python train.py"), "THREADS=1"),
        (sbatch("--gpus=4 --mem=9G -t 9", "deepspeed --num_gpus 4 train.py"), "deepspeed"),
    ],
    "ulimit-here": [
        (job("ulimit -l unlimited", f"{SRUN} python train.py"), "ulimit -l"),
        (job("if true; then ulimit -n 65536; fi", f"{SRUN} python train.py"), "ulimit -n"),
        (job(f"{SRUN} --task-prolog='ulimit -s unlimited' python train.py"), "--task-prolog"),
        (job("prlimit --memlock=unlimited --pid $$", f"{SRUN} python train.py"), "prlimit"),
    ],
    "default-memory": [
        (sbatch("-N2 -t 9"), "#SBATCH"),
        (sbatch("--nodes=2 --exclusive --time=9"), "--exclusive"),
        (sbatch("-N2\n#SBATCH --gres=gpu:8\n#SBATCH -t 9", f"srun -K --container-image={IMAGE} python train.py"),
         "-N2"),
    ],
    "image-on-sbatch": [
        (sbatch(f"-N2 --mem=0 -t 9 --container-image={IMAGE}"), "--container-image"),
        (job(f"{SRUN} --container-image={IMAGE} bash -c 'scontrol show hostnames; python train.py'"), "scontrol"),
        (job("cat <<'END' >run-$SLURM_JOB_ID.sh", "#!/bin/bash",
             "export MASTER_ADDR=$(scontrol show hostname $L | head -n1)", "END",
             f"{SRUN} {DOCKER} {IMAGE} bash run-$SLURM_JOB_ID.sh"), "hostname $L"),
    ],
    "separate-jobs": [
        (job(f"{SRUN} bash -c 'torchrun --nnodes=2 --nproc-per-node=8 {MEET} train.py'"), "torchrun"),
        (job(f"{SRUN} torchrun --standalone --nproc-per-node=8 train.py"), "--standalone"),
        (job(f"{SRUN} python -m torch.distributed.run --nproc_per_node 8 {MEET} train.py"), "torch.distributed"),
        (job(f"{SRUN} torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT train.py"),
         "c10d"),
    ],
    "shared-file": [
        (job('scontrol show hostnames "$SLURM_JOB_NODELIST" >hostfile', f"{SRUN} python train.py"), ">hostfile"),
        (job("cat <<END >run.sh", "#!/bin/bash", "python train.py", "END", f"{SRUN} bash run.sh"), "run.sh"),
        (job("tee ds_config.json <<END", "{}", "END", f"{SRUN} python train.py"), "ds_config.json"),
        (job("srun hostname | sort > ~/hosts.txt", f"{SRUN} python train.py"), "hosts.txt"),
    ],
}  # fmt: skip

FORMS = [(name, text, where) for name, forms in MISTAKES.items() for text, where in forms]


@pytest.mark.parametrize(("name", "text", "where"), FORMS, ids=[f"{name}-{where}" for name, _, where in FORMS])
def test_a_mistake_is_found_in_its_line_and_no_other_with_it(name: str, text: str, where: str) -> None:
    (found,) = findings(text)

    assert found.name == name
    lines = text.split("\n")
    assert where in lines[found.line - 1] or where in " ".join(lines[found.line - 1 : found.line + 3])
    assert all((found.problem, found.effect, found.better))


def test_every_rule_has_three_forms() -> None:
    assert set(MISTAKES) == set(RULES)
    assert min(map(len, MISTAKES.values())) >= 3


@pytest.mark.parametrize("script", CLEAN, ids=lambda script: script.name)
def test_nothing_is_found_where_nothing_is_wrong(script: Path) -> None:
    assert findings(script.read_text(encoding="utf-8")) == []


def test_a_published_template_for_docker_and_megatron_yields_its_mistakes() -> None:
    # As it is printed in a guide to Slurm with Docker.
    template = Path(__file__).parent / "seed_scripts" / "megatron_docker.slurm"

    found = [(one.line, one.name) for one in findings(template.read_text(encoding="utf-8"))]

    assert found == [
        (32, "shared-file"),
        (47, "image-on-sbatch"),
        (48, "fixed-port"),
        (103, "one-thread"),
        (103, "separate-jobs"),
        (122, "hanging-step"),
        (122, "lost-work"),
        (122, "cpus-not-inherited"),
        (124, "ungranted-gpus"),
        (129, "ungranted-gpus"),
        (132, "moving-tag"),
    ]


def test_there_are_ten_clean_scripts() -> None:
    assert len(CLEAN) >= 10


@pytest.mark.parametrize(
    "line",
    [
        "# export MASTER_PORT=29500",
        "echo 'use --gpus all with docker run, and MASTER_PORT=29500'",
        "squeue --me | tee -a queue.log; nvidia-smi | head -n 3",
        "port=29500  # of nobody",
        "srun hostname",
        "export NCCL_IB_HCA=mlx5",
    ],
)
def test_what_only_looks_like_one_is_none(line: str) -> None:
    assert findings(job(line, f"{SRUN} python train.py")) == []


@pytest.mark.parametrize(
    "text",
    [
        "echo it\\'s", "# it's", "echo ${#a} a#'b'", "x=$(cat <<E\nit's\nE\n)", "echo $'it\\'s'", "((x<<n))",
        "exit\nit's",
        "x=$(case $a in b) echo \"c\";; esac)", "cat <<E\nit's\nE", "cat <<-E\nit's\n\tE", "x=`echo \"a\\\"b\"`",
        "x=$(echo a # it's\n)",
        "cat <<<'a b'", 'echo "a\\"b"', "echo \"it's\"", "awk '{print \"a\"}'", 'x="$(echo "a b")"', "x=${y:-'a'}",
    ],
)  # fmt: skip
def test_what_a_shell_closes_or_may_close_is_not_called_open(text: str) -> None:
    assert [one for one in findings(f"#!/bin/bash\n{text}\n") if one.name == "unclosed"] == []


def test_a_launcher_that_stands_in_a_variable_over_several_lines_is_read_as_it_is_run() -> None:
    launcher = (
        'LAUNCHER="torchrun \\\n --nnodes 2 --node_rank \\$SLURM_NODEID --nproc_per_node $((4 * 2)) \\\n'
        ' --master_addr $MASTER_ADDR --master_port 6000"'
    )

    (found,) = findings(job(launcher, f'{SRUN} bash -c "$LAUNCHER train.py"', "export LAUNCHER"))

    assert (found.name, found.problem) == ("fixed-port", "the port 6000 is every job's")


@given(st.text(alphabet="abc $\\'\"`(){}<>|&;\n#=-!srundocker0/.", max_size=200))
def test_any_text_is_read_to_its_end(text: str) -> None:
    findings(text)
    findings("#!/bin/bash\n#SBATCH -N2\n" + text)


def test_a_time_limit_that_is_no_number_for_slurm_is_no_limit() -> None:
    assert {one.name for one in findings(sbatch(f"-N2 --mem=0 --time={'1' * 9000}"))} == {"lost-work"}


def call(*words: str, text: str | None = None) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["lint-job", *words], input=text)
    return done.exit_code, done.output


def test_a_finding_is_told_with_its_place_its_effect_and_the_better_line(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(job("export NCCL_IB_DISABLE=1", f"{SRUN} python train.py"), encoding="utf-8")

    code, told = call(str(file))

    assert code == 8
    assert f"{file}:6: left-from-debugging: NCCL_IB_DISABLE=1\n    effect: no RDMA" in told
    assert "better: leave NCCL_IB_DISABLE out" in told
    assert f"{file}: 1 mistake\n" in told
    code, told = call("--json", str(file))
    assert (code, json.loads(told)["findings"][0]["line"]) == (8, 6)


def test_a_good_script_is_called_good() -> None:
    assert call("-", text=DDP) == (0, "-: good\n")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b"\n \n", "it is empty"),
        (b"\x7fELF\0\0", "it is no text"),
        (b"#!/usr/bin/env python3\nimport torch\n", "it is for /usr/bin/env python3"),
        (b"#!/bin/bash\r\n#SBATCH -N2\r\n", "as on Windows"),
        (b"#" * (4 * 1024 * 1024 + 1), "larger than the 4 MiB"),
    ],
)
def test_what_is_no_job_script_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)

    done = CliRunner().invoke(cli, ["lint-job", str(file)])

    assert done.exit_code == 2
    assert words in done.output
    assert call(str(tmp_path / "none"))[0] == 2


def test_what_a_script_says_to_ignore_is_no_mistake() -> None:
    script = "#!/bin/bash\n#SBATCH --nodes=2\nexport MASTER_PORT=29500\nsrun --kill-on-bad-exit=1 torchrun train.py\n"
    names = {one.name for one in findings(script)}

    told = {one.name for one in findings(f"{script}# Alone there. lint-job: ignore fixed-port, lost-work\n")}

    assert {"fixed-port", "lost-work"} <= names
    assert told == names - {"fixed-port", "lost-work"}
    assert {one.name for one in findings(f"{script}echo lint-job: ignore fixed-port\n")} == names


@pytest.mark.parametrize("image", ["7fbbc8cd26a8", "sha256:" + "a1" * 32])
def test_an_images_number_is_no_other_images(image: str) -> None:
    assert findings(job(f"{SRUN} --container-image={image} python train.py")) == []
