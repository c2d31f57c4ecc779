#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:8 --mem=0 --exclusive --time=30:00
export OMP_NUM_THREADS=8
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR MASTER_PORT
cat <<'END' >"launch-$SLURM_JOB_ID.sh"
#!/bin/bash
exec accelerate launch --num_machines "$SLURM_JOB_NUM_NODES" --machine_rank "$SLURM_NODEID" \
  --num_processes $((8 * SLURM_JOB_NUM_NODES)) --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT" train.py
END
srun --kill-on-bad-exit bash "launch-$SLURM_JOB_ID.sh"
