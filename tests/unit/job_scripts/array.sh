#!/bin/bash
#SBATCH --array=0-99%8
#SBATCH --gres=gpu:1 --cpus-per-task=4 --mem=32G --time=00:40:00
#SBATCH --output=array-%A-%a.out
python sweep.py --seed "$SLURM_ARRAY_TASK_ID"
