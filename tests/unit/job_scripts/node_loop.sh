#!/bin/bash
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=2
#SBATCH --mem=120G
#SBATCH --time=20:00
export OMP_NUM_THREADS=6
nodes=( $(scontrol show hostnames "$SLURM_JOB_NODELIST") )
head_node=${nodes[0]}
port=$((20000 + SLURM_JOB_ID % 10000))
pids=()
for ((i = 0; i < ${#nodes[@]}; i++)); do
  srun --nodes=1 --ntasks=1 -w "${nodes[i]}" --kill-on-bad-exit=1 \
    torchrun --nnodes="${#nodes[@]}" --node_rank="$i" --nproc_per_node=2 \
             --master_addr="$head_node" --master_port="$port" train.py &
  pids+=($!)
done
rc=0
for pid in "${pids[@]}"; do
  wait "$pid" || rc=$?
done
exit "$rc"
