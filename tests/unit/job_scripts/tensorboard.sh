#!/bin/bash
#SBATCH --nodes=2 --ntasks=2 --gres=gpu:4 --mem=100G --time=50:00
set -o errexit -o nounset -o pipefail
export OMP_NUM_THREADS=4
port=$((30000 + SLURM_JOB_ID % 2000))
tensorboard --logdir "runs/$SLURM_JOB_ID" --port "$port" &
board=$!
addr=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
ARGS=(
  --nnodes 2 --nproc-per-node 4   # GPUs of a node
  --rdzv-backend c10d
  --rdzv-id "$SLURM_JOB_ID"
  --rdzv-endpoint "$addr:$port"
)
srun --kill-on-bad-exit=1 torchrun "${ARGS[@]}" train.py 2>&1 | tee "train-$SLURM_JOB_ID.log"
kill "$board"
