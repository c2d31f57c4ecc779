#!/bin/bash
# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
# The node's part of the DDP job, started once per node by srun: run torchrun in a rootless container with the GPUs that
# Slurm granted, and leave neither a container nor a process behind. Arguments go to ddp_proof.
set -euo pipefail

HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
export HOME
# Nothing shared is assumed: every node keeps its own records. The ten latest of this user stay.
umask 0077
mkdir -p "$DDP_RUNS"
if [[ ! -O $DDP_RUNS || -L $DDP_RUNS ]]; then
  echo "$DDP_RUNS belongs to somebody else"
  exit 2
fi
mkdir -p "$DDP_RUN_DIRECTORY"
find "$DDP_RUNS" -mindepth 1 -maxdepth 1 -user "$(id -u)" -printf '%T@ %p\n' |
  sort -rn | tail -n +11 | cut -d' ' -f2- | xargs -r rm -rf --
exec 5>&1 >"$DDP_RUN_DIRECTORY/node.log" 2>&1
node=$SLURMD_NODENAME
name=clusterctl-ddp-$SLURM_JOB_ID-$SLURM_STEP_ID-$SLURM_NODEID
echo "node $node ($SLURM_NODEID of $SLURM_JOB_NUM_NODES), job $SLURM_JOB_ID, rendezvous $DDP_ADDRESS:$DDP_PORT, $DDP_IMAGE"

# The address under which the other nodes know this one; gloo and torchrun would ask the machine's own name for it.
read -r own _ < <(getent ahostsv4 "$node") || { echo "$node does not resolve here: Name or service not known"; exit 2; }
if [[ $own == 127.* && $SLURM_JOB_NUM_NODES -gt 1 ]]; then
  echo "$node resolves to $own on itself: the other nodes could not connect to it"
  exit 2
fi

# Where there is none, nvidia-smi says so on the same stream, in words.
uuids_of() { nvidia-smi "$@" --query-gpu=uuid --format=csv,noheader | grep '^GPU-' || true; }

# What Slurm granted: CUDA_VISIBLE_DEVICES in the step's own numbering, SLURM_STEP_GPUS in the machine's.
# "NoDevFiles" is Slurm's word for no device at all.
visible=${CUDA_VISIBLE_DEVICES:-}
[[ $visible != NoDevFiles ]] || visible=
IFS=, read -ra granted <<<"$visible"
options=()
# What is declared decides; a grant that is missing is then seen as a rank without its GPU.
device=cpu
if ((${DDP_GPUS:-0} > 0)) && [[ ,$CLUSTER_SIMULATED, != *,gpu,* ]]; then device=cuda; fi
uuids=
if [[ ,$CLUSTER_SIMULATED, == *,gpu,* ]]; then
  options+=(--env "CUDA_VISIBLE_DEVICES=$visible")
elif ((${#granted[@]} > 0)); then
  device=cuda
  # Where Slurm constrains devices, nvidia-smi lists exactly the granted ones; elsewhere it lists all, and numbers help.
  # MIG instances are listed below their GPUs, and have UUIDs of their own.
  mapfile -t seen < <(nvidia-smi -L | sed -n 's/^ .*(UUID: \(MIG-[^)]*\))$/\1/p')
  if ((${#seen[@]} == 0)); then mapfile -t seen < <(uuids_of); fi
  if [[ ${granted[0]} == MIG-* ]]; then
    seen=("${granted[@]}")
  elif ((${#seen[@]} != ${#granted[@]})); then
    mapfile -t seen < <(uuids_of --id="${SLURM_STEP_GPUS:-${SLURM_JOB_GPUS:-$visible}}")
  fi
  if ((${#seen[@]} == 0)); then
    echo "Slurm granted ${#granted[@]} GPUs, and nvidia-smi lists none: $(nvidia-smi -L 2>&1 | tail -n 1)"
    exit 2
  fi
  uuids=$(IFS=,; echo "${seen[*]}")
  for uuid in "${seen[@]}"; do options+=(--device "nvidia.com/gpu=$uuid"); done
  options+=(--env CUDA_DEVICE_ORDER=PCI_BUS_ID)
  if compgen -G "/dev/infiniband/*" >/dev/null; then options+=(--device /dev/infiniband); fi
  # NCCL tells in the ranks' logs over which way it connects: that is judged, and must not go elsewhere.
  for variable in ${!NCCL_@}; do [[ $variable == NCCL_DEBUG* ]] || options+=(--env "$variable"); done
  options+=(--env NCCL_DEBUG=INFO)
fi
ranks=${#granted[@]}
if ((ranks == 0)); then # a cluster without GPUs: as many ranks as the inventory asks for
  ranks=$(tr ',' '\n' <<<"$DDP_EXPECT" | sed -n "s/^$node=//p")
fi
# What monitoring reads of the training.
[[ ! -w ${JOB_TRAINING:-} ]] || options+=(--volume "$JOB_TRAINING:$JOB_TRAINING" --env JOB_TRAINING)
# A test hook must reach the program; it marks the result, which then never counts.
for variable in ${!DDP_PROOF_@}; do options+=(--env "$variable"); done

# shellcheck disable=SC2317 # called by the trap
finish() {
  podman rm --force --ignore --time 0 "$name" >/dev/null 2>&1 || true
  tail -n 12 "$DDP_RUN_DIRECTORY/node.log" >&5 || true
}
trap finish EXIT
# Shorter than Slurm's KillWait of 30 s, so that the ranks still write where they were.
trap 'podman stop --time 10 "$name" >/dev/null 2>&1 || true' TERM INT

# What podman warns of, a private mount, is how this cluster runs containers.
podman --log-level error run --rm --name "$name" --label "clusterctl.job=$SLURM_JOB_ID" --pull never --read-only \
  --network host --ipc host --cgroups disabled --security-opt label=disable --ulimit host \
  --volume "$DDP_RUN_DIRECTORY:$DDP_RUN_DIRECTORY" \
  --volume "$DDP_DIRECTORY/ddp_proof:/clusterctl/ddp_proof:ro" --env PYTHONPATH=/clusterctl \
  --env SLURM_JOB_ID --env SLURMD_NODENAME --env CLUSTER_SIMULATED --env HOME=/tmp --env OMP_NUM_THREADS=1 \
  --env "DDP_PROOF_IMAGE=$DDP_IMAGE" --env "DDP_PROOF_GRANTED=$uuids" "${options[@]}" \
  "$DDP_IMAGE" python3 -m torch.distributed.run \
  --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node "$ranks" --max-restarts 0 --local-addr "$own" \
  --rdzv-backend c10d --rdzv-endpoint "$DDP_ADDRESS:$DDP_PORT" --rdzv-id "$SLURM_JOB_ID" \
  --rdzv-conf "is_host=$((SLURM_NODEID == 0)),join_timeout=120" \
  --module ddp_proof --out "$DDP_RUN_DIRECTORY" --run-id "$DDP_RUN_ID" --expect "$DDP_EXPECT" --device "$device" "$@" &
pid=$!
# A trapped signal ends wait early; the container's own exit code is what counts.
while :; do
  code=0
  wait "$pid" || code=$?
  kill -0 "$pid" 2>/dev/null || break
done
exit "$code"
