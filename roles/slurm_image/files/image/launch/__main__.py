# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""torchrun-slurm, and what its launchers start."""

import os
import signal
import sys
from pathlib import Path

from torchrun_slurm import hostfile, main, requeue, ssh, worker

if sys.argv[1:2] == [ssh.SESSION]:
    raise SystemExit(ssh.session(Path(sys.argv[2])))
if sys.argv[1:2] == [hostfile.DEEPSPEED]:
    raise SystemExit(hostfile.called_as_deepspeed(Path(sys.argv[2]), sys.argv[3:], os.environ))
if worker.is_worker(sys.argv[1:]):
    raise SystemExit(worker.run(sys.argv[1:]))
try:
    raise SystemExit(main.main(sys.argv[1:], dict(os.environ)))
finally:
    # Where one task has ended, srun ends the others. The interpreter's own end gives a signal that a function handles
    # its first meaning back, and the exit code would be the signal's.
    for number in requeue.ENDING:
        signal.signal(number, signal.SIG_IGN)
