#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=8 --gres=gpu:a100:8 --cpus-per-task=8
#SBATCH --exclusive --mem=0 --time=00:45:00
set -Eeuo pipefail
case "${1:-small}" in
  small) layers=12 ;;
  large|huge)
    layers=48
    export NCCL_NET_GDR_LEVEL=PHB ;;
  *) echo "no model $1" >&2; exit 2 ;;
esac
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) NCCL_DEBUG=${NCCL_DEBUG:-WARN}
read -r -d '' step <<'STEP' || true
export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
ulimit -n 65536
exec python pretrain.py --layers "$LAYERS"
STEP
LAYERS=$layers srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c "$step"
