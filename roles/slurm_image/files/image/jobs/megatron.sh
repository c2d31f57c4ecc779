#!/bin/bash
# Megatron's pretraining with its arguments as data: what cannot be shared out is refused before anything is submitted.
# Copy this file, then change what stands below, and start it by itself: ./megatron.sh [OPTION OF SBATCH]...
#   nodes, gpus                how much, and what of it shares out tensors (tp), layers (pp), and contexts (cp)
#   slurm                      --account, --partition are yours (sshare --user=$USER; sinfo); --time, processors, memory
#   run                        a name for each: another run with the same one goes on with its checkpoints
#   image                      one with Megatron-LM: what docker images shows, or a name in a registry
#   program                    pretrain_gpt.py of Megatron-LM. The one beside this file takes the same arguments and
#                              trains a small GPT by data parallel workers alone, for trying this script
#   model, training            Megatron's own arguments; its pretrain_gpt.py wants a tokenizer and data as well
# What is left of the GPUs are data parallel copies: nodes x gpus / (tp x pp x cp). It goes on when it is requeued.
set -euo pipefail
nodes=${NODES:-2} gpus=${GPUS:-1} tp=${TP:-1} pp=${PP:-1} cp=${CP:-1}
slurm=(--job-name=megatron --time=04:00:00 --cpus-per-task=2 --mem-per-gpu=8G)
run=megatron-1 image=${IMAGE:-pytorch:cluster} program=pretrain_gpt.py checkpoints=$PWD/$run
layers=4 heads=4 micro=2 global=16
model=(
    --num-layers "$layers" --hidden-size 64 --num-attention-heads "$heads" --seq-length 32
    --max-position-embeddings 32
)
training=(
    --micro-batch-size "$micro" --global-batch-size "$global" --lr 1e-3 --train-iters 20 --log-interval 10
    --save-interval 10 --vocab-size 256 --save "$checkpoints" --load "$checkpoints"
)

if [ -z "${SLURM_JOB_ID:-}" ]; then
    refuse() { echo "megatron.sh: $1" >&2; exit 2; }
    for size in nodes gpus tp pp cp layers heads micro global; do
        [[ ${!size} =~ ^[1-9][0-9]{0,5}$ ]] ||
            refuse "$size is '${!size}'. Fix: a whole number from 1 on, above, or by NODES, GPUS, TP, PP, CP: TP=1 $0"
    done
    workers=$((nodes * gpus)) copies=$((nodes * gpus / (tp * pp * cp)))
    [ $((workers % (tp * pp * cp))) = 0 ] || refuse "$workers GPUs cannot be shared by tp $tp x pp $pp x cp $cp"
    [ $((gpus % tp)) = 0 ] || refuse "tp $tp goes over a node's $gpus GPUs: tensors would go through the network"
    [ $((layers % pp)) = 0 ] || refuse "$layers layers cannot be shared by pp $pp"
    [ $((heads % tp)) = 0 ] || refuse "$heads heads cannot be shared by tp $tp"
    [ $((global % (micro * copies))) = 0 ] || refuse "a batch of $global is not a multiple of $micro x $copies copies"
    echo "megatron.sh: $workers GPUs: tp $tp, pp $pp, cp $cp, $copies data parallel copies"
    exec sbatch --nodes="$nodes" --gpus-per-node="$gpus" --ntasks-per-node=1 --requeue --open-mode=append \
        --output=%x-%j.log "${slurm[@]}" "$@" "$0"
fi

export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
# Megatron wants it where tensors or contexts are shared out, on GPUs before Blackwell; with FSDP it would hold that up.
# Its options alone say so (--use-megatron-fsdp, --use-torch-fsdp2): a directory may have fsdp in its name.
if [ $((tp * cp)) -gt 1 ] && ! [[ " ${model[*]} ${training[*]}" =~ " --use-"[a-z0-9-]*fsdp ]]; then
    export CUDA_DEVICE_MAX_CONNECTIONS=1
fi
# Megatron itself saves and ends with 0 before a time of more than an hour is over; the job goes on in a new turn. It
# counts minutes from its own begin, which an image can delay.
end=$((SLURM_JOB_END_TIME - (SLURM_JOB_END_TIME - EPOCHSECONDS > 3600 ? 1200 : 0)))
# shellcheck disable=SC2016 # of the container's shell
srun --kill-on-bad-exit=1 --container-image="$image" --container-mounts="$PWD" --container-workdir="$PWD" \
    sh -c 'end=$1; shift; exec "$@" --exit-duration-in-mins "$(((end - $(date +%s)) / 60))"' megatron "$end" \
    torchrun-slurm --output-dir "$checkpoints" "$program" --tensor-model-parallel-size "$tp" \
    --pipeline-model-parallel-size "$pp" --context-parallel-size "$cp" "${model[@]}" "${training[@]}"
if [ "$EPOCHSECONDS" -ge $((end - 60)) ]; then
    [ "${SLURM_RESTART_COUNT:-0}" -lt 20 ] || { echo "not at its end after 20 turns" >&2; exit 1; }
    scontrol requeue "$SLURM_JOB_ID"
fi
