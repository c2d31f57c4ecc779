# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Prove that the ranks of a job train one model together, and name the guilty one where they do not.

Needs torch (2.1 or newer) and the standard library; started by ``python -m torch.distributed.run --module ddp_proof``,
one process per GPU. Where GPUs are real, the work goes over NCCL; without GPUs, or where they are only simulated
(environment ``CLUSTER_SIMULATED=gpu``), over gloo on the CPU, and every record says so. Gloo always is the second,
independent path.

Each rank keeps ``rank-<n>.json`` up to date from its first second, together with ``rank-<n>.log``, in a directory of
its own machine: nothing shared is assumed, and a rank that dies has still said where it was. Rank 0 writes
``result.json`` after the last barrier. Exit code 0: every step passed or did not apply; 3: a step failed; 1: the job
broke.

For tests only: ``DDP_PROOF_SABOTAGE`` makes rank 1 (or the rank in ``DDP_PROOF_SABOTAGE_RANK``) misbehave, as
``same_data``, ``wrong_value``, ``wrong_receive``, ``wrong_collective``, ``local_gradient``, ``half_gradient``,
``nan_gradient``, ``gradient``, ``odd_version``, ``exit``, ``sleep``, ``cpu_fallback``, ``no_result`` or
``blind_check``. A result made with it says so and is never accepted as a proof.
"""
