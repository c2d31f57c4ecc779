#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=4 --gres=gpu:4 -c 8
#SBATCH --mem-per-gpu=64G -t 0-00:30:00
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun -K1 --container-image=harbor.site/team/torch:2.13.0 --container-mounts=/datasets:/datasets \
     python train.py --data-dir /datasets/imagenet
