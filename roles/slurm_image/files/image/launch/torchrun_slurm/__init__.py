# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""A distributed training in a step of Slurm: what it needs is worked out, looked at, started, and watched to its end.

One program in one file, so that a container needs nothing but it and Python 3.8. Without PyTorch: its own interpreter
runs what is started.
"""
