#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --mem=0 --time=40
IMAGE=${IMAGE:-registry.site/team/train:2.13.0}
MASTER_ADDR=$(scontrol show hostname "$SLURM_NODELIST" | head -n1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export IMAGE MASTER_ADDR MASTER_PORT OMP_NUM_THREADS=8
srun --kill-on-bad-exit=1 bash -s <<'STEP'
set -eu
gpus=()
for uuid in $(nvidia-smi --query-gpu=uuid --format=csv,noheader); do
  gpus+=(--device "nvidia.com/gpu=$uuid")
done
exec podman run --rm --name "train-$SLURM_JOB_ID" "${gpus[@]}" --network host --ipc host \
  --ulimit memlock=-1:-1 --device /dev/infiniband -e OMP_NUM_THREADS -v "$PWD:/work" "$IMAGE" \
  torchrun --nnodes "$SLURM_JOB_NUM_NODES" --node-rank "$SLURM_NODEID" --nproc-per-node gpu \
  --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" /work/train.py
STEP
