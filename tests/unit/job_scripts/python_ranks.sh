#!/usr/bin/env bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8      # one for each GPU
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --mem-per-gpu=100G
#SBATCH --time=55
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export MASTER_PORT=$((15000 + SLURM_JOBID % 5000))
export NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$HOME/nccl/$SLURM_JOB_ID-%h-%p.log
export NCCL_SOCKET_IFNAME=^lo,docker0
srun --cpus-per-task=$SLURM_CPUS_PER_TASK --kill-on-bad-exit=1 \
  bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec python train.py'
