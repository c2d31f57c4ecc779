#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --mem=0
#SBATCH --time=01:00:00
set -o pipefail
export OMP_NUM_THREADS=8 MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
hosts=hosts-$SLURM_JOB_ID
scontrol show hostnames "$SLURM_JOB_NODELIST" | sed 's/$/ slots=4/' >"$hosts"
srun -K --label bash -c "deepspeed --hostfile $hosts --no_ssh --node_rank \$SLURM_NODEID \
  --master_addr $first --master_port $MASTER_PORT train.py --deepspeed ds.json" | tee "log-$SLURM_JOB_ID"
