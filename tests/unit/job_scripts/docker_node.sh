#!/bin/bash
# What each task runs: a container with the GPUs that the step was granted.
set -euo pipefail
export OMP_NUM_THREADS=12
name=train-$SLURM_JOB_ID-$SLURM_STEP_ID-$SLURM_NODEID
uuids=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | paste -sd,)
trap 'docker rm -f "$name" >/dev/null 2>&1 || true' EXIT
docker run --name "$name" --init --gpus "\"device=$uuids\"" --network host --ipc host \
  --ulimit memlock=-1 --ulimit stack=67108864 --cap-add IPC_LOCK --device /dev/infiniband \
  --user "$(id -u):$(id -g)" -v "$PWD:$PWD" -w "$PWD" -e NCCL_DEBUG -e OMP_NUM_THREADS "$IMAGE_BY_DIGEST" \
  python -m torch.distributed.run --nnodes="$SLURM_JOB_NUM_NODES" \
    --node-rank="$SLURM_NODEID" --nproc-per-node=gpu \
    --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@" &
wait $!
