#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --mem=0 --time=25:00
set -o pipefail
export OMP_NUM_THREADS=8
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
export MASTER_PORT=$(( 20000 + SLURM_JOB_ID % 10000 ))

LAUNCHER="accelerate launch \
    --num_machines $SLURM_NNODES \
    --num_processes $((SLURM_NNODES * 4)) \
    --machine_rank \$SLURM_PROCID \
    --main_process_ip $MASTER_ADDR \
    --main_process_port $MASTER_PORT"
SCRIPT="train.py --mixed_precision bf16"

CMD="$LAUNCHER $SCRIPT"
echo "$CMD"
SRUN_ARGS="--wait=60 --kill-on-bad-exit=1"
clear_cache() { sync; }
clear_cache
srun $SRUN_ARGS --jobid "$SLURM_JOB_ID" bash -c "$CMD" 2>&1 | tee "main_log-$SLURM_JOB_ID.txt"
