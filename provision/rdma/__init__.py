"""InfiniBand, RoCE and GPUDirect: what adapters say, and by which mechanism they reach GPUs. Pure."""
