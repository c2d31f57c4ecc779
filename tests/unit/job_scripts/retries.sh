#!/bin/bash
#SBATCH --gpus=1 --cpus-per-task=6 --mem=40G --time=0:59:00 --array=1-20
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
config=$(sed -n "${SLURM_ARRAY_TASK_ID}p" configs.txt)
out=results/$SLURM_ARRAY_JOB_ID/$SLURM_ARRAY_TASK_ID
mkdir -p "$out"
for try in 1 2 3; do
  if srun python sweep.py --config "$config" --out "$out"; then
    exit 0
  fi
  echo "try $try of $config failed" >&2
  sleep $((try * 30))
done
exit 1
