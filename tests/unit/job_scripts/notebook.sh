#!/bin/sh
#SBATCH --gpus=1 --mem=32G --time=08:00:00
# A tunnel from one's own computer: ssh -L 8888:NODE:PORT head
port=$((20000 + SLURM_JOB_ID % 10000))
echo "ssh -L 8888:$(hostname):$port ${SLURM_SUBMIT_HOST:-head}"
exec jupyter lab --no-browser --ip="$(hostname)" --port="$port"
