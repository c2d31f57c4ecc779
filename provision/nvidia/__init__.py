"""NVIDIA's driver, toolkits and container access: what to install, what is impossible and why. Pure."""
