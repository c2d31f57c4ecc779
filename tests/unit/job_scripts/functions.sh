#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=4 --gres=gpu:4 --cpus-per-task=8 --mem-per-gpu=64G
#SBATCH -t 1-00:00:00 --signal=B:USR1@300 --requeue --open-mode=append

log() { printf '%(%F %T)T %s\n' -1 "$*"; }

prepare ()
{
    local scratch=/tmp/$SLURM_JOB_ID
    srun --ntasks-per-node=1 mkdir -p "$scratch" || true
    { hostname; srun nvidia-smi -L; } | sort -u | tee "gpus-$SLURM_JOB_ID.txt"
}

cleanup() {
    srun --ntasks-per-node=1 rm -rf "/tmp/$SLURM_JOB_ID" || true
}

function train {
    srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" python train.py "$@"
}

main() {
    log start
    prepare
    trap cleanup EXIT
    trap 'touch stop' USR1
    export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
    export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
    train "$@" &
    local pid=$! rc=0
    wait "$pid" || rc=$?
    if ((rc > 128)); then wait "$pid" || rc=$?; fi
    return "$rc"
}

main "$@"
