#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --mem=0 --time=00:30:00
export OMP_NUM_THREADS=8
job=$SLURM_JOB_ID
addr=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)
rdzv="--rdzv-backend=c10d --rdzv-id=$job --rdzv-endpoint=$addr:$((20000 + job % 10000))"
ngpu=8

stage() {
  local name=$1; shift
  srun --kill-on-bad-exit=1 --ntasks=$((SLURM_NNODES * 1)) --output="$name-$job-%t.log" \
    torchrun --nnodes=2 --nproc_per_node=$ngpu $rdzv "$name.py" "$@"
}

if stage pretrain --steps 1000; then
  stage finetune --from "checkpoints/$job" || exit $?
else
  rc=$?
  echo "pretraining ended with $rc" | tee -a "errors-$job.log"
  exit $rc
fi
