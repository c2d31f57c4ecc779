#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --mem=0 --time=45
set -eo pipefail
export OMP_NUM_THREADS=8
wd=$SLURM_SUBMIT_DIR/run/${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}
mkdir -p "$wd" && cd "$wd"
port=$((20000 + SLURM_JOB_ID % 10000))
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

scontrol show hostnames "$SLURM_JOB_NODELIST" |
    sed 's/$/ slots=4/' > hostfile

cat > ds_config.json <<JSON
{"train_batch_size": 64, "zero_optimization": {"stage": 2}}
JSON

cat > launch.sh <<'SH'
#!/bin/bash
exec deepspeed --hostfile hostfile --no_ssh --node_rank "$SLURM_NODEID" \
    --master_addr "$1" --master_port "$2" "$3/train.py" --deepspeed ds_config.json
SH
chmod +x launch.sh
srun -K1 bash launch.sh "$head" "$port" "$SLURM_SUBMIT_DIR"
