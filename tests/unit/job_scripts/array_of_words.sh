#!/usr/bin/env bash
#SBATCH --job-name=words --nodes=4 --ntasks-per-node=1 --gpus-per-node=8
#SBATCH --mem=0 --exclusive --time=00:50:00
set -euo pipefail
readonly RUN_DIR=${SCRATCH:-$HOME}/runs/$SLURM_JOB_ID
export OMP_NUM_THREADS=12
mapfile -t NODES < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
MASTER_ADDR=${NODES[0]}
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR MASTER_PORT RUN_DIR
mkdir -p "$RUN_DIR"
printf '%s slots=8\n' "${NODES[@]}" >"$RUN_DIR/hostfile"

LAUNCH=(
    torchrun
    --nnodes "$SLURM_JOB_NUM_NODES"
    --nproc-per-node 8            # a worker for each GPU
    --node-rank '$SLURM_NODEID'   # left to the shell of the task
    --master-addr "$MASTER_ADDR"
    --master-port "$MASTER_PORT"
)
ARGS=(--config configs/7b.yaml --output "$RUN_DIR")
ARGS+=(--resume)

srun --kill-on-bad-exit=1 --label bash -c "${LAUNCH[*]} pretrain.py ${ARGS[*]}" 2>&1 | tee -a "$RUN_DIR/train.log"
