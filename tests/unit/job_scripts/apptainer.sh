#!/bin/bash
#SBATCH --nodes=1 --gpus=4 --cpus-per-task=32 --mem=200G --time=1-00:00:00 --signal=USR1@120 --requeue
set -euo pipefail
for try in 1 2 3; do
  if nvidia-smi -L | grep -c UUID; then break; fi
  sleep "$try"
done
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" apptainer exec --nv /images/torch-2.13.sif \
  env OMP_NUM_THREADS=8 torchrun --standalone --nproc-per-node=4 train.py
