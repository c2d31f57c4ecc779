"""RDMA for real, over soft-RoCE: adapters that are up, transfers that the device counts, and each way to fail."""
