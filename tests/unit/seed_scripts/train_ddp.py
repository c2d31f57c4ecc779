import torch.distributed as dist

def main():
    # Slurm自动注入环境变量
    dist.init_process_group(backend="nccl", init_method="env://")
    local_rank = int(os.environ['SLURM_LOCALID'])
    world_size = int(os.environ['SLURM_NTASKS'])

    torch.cuda.set_device(local_rank)
    model = nn.parallel.DistributedDataParallel(
        model, device_ids=[local_rank]
    )

    # 数据加载使用DistributedSampler
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=dist.get_rank())
