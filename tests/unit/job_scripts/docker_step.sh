#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --cpus-per-task=96
#SBATCH --exclusive --mem=0 --time=02:00:00 --requeue --open-mode=append
#SBATCH --signal=B:USR1@300 --output=%x-%j.out
set -euo pipefail
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
attempt=${SLURM_RESTART_COUNT:-0}
dir=$PWD/logs/$SLURM_JOB_NAME-$SLURM_JOB_ID
mkdir -p "$dir"
export MASTER_ADDR MASTER_PORT STOP_FILE=$dir/stop.$attempt
requeue=0
trap 'requeue=1; touch "$STOP_FILE"' USR1
srun --kill-on-bad-exit=1 --wait=60 \
     --output="$dir/node-%N.$attempt.out" ./node_launch.sh "$@" &
pid=$!
rc=0
while :; do
  rc=0
  wait "$pid" || rc=$?
  kill -0 "$pid" 2>/dev/null || break
done
if ((requeue && rc == 0 && attempt < 3)); then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$rc"
