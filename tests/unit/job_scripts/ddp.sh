#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --cpus-per-task=96
#SBATCH --exclusive --mem=0 --time=12:00:00
#SBATCH --requeue --open-mode=append --signal=B:USR1@300 --output=%x-%j.out
set -euo pipefail
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / 8))
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR MASTER_PORT
trap 'touch stop' USR1
srun --kill-on-bad-exit=1 --wait=60 bash -c 'python -m torch.distributed.run \
    --nnodes=$SLURM_JOB_NUM_NODES --node-rank=$SLURM_NODEID --nproc-per-node=gpu \
    --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT train.py' &
wait $!
