#!/bin/bash -l
#SBATCH -J eval
#SBATCH -N 1
#SBATCH --gres=gpu:h100:2
#SBATCH -c 16 --mem=64G
#SBATCH -t 00:20:00
module load apptainer 2>/dev/null || true
SIF="${SIF:-$HOME/images/torch-2.13.sif}"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
pushd "$work" >/dev/null || exit 1
cat <<YAML | tee config.yaml >/dev/null
model: base
seed: ${SEED:-1}
YAML
binds=(--bind "$work" --bind "/datasets:/datasets:ro")
export APPTAINERENV_NCCL_SOCKET_IFNAME=^lo,docker0 APPTAINERENV_OMP_NUM_THREADS=8
timeout 15m srun -c "$SLURM_CPUS_PER_TASK" apptainer exec --nv "${binds[@]}" "$SIF" \
    torchrun --standalone --nproc-per-node=2 evaluate.py --config config.yaml
