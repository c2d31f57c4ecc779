# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""torchrun-slurm, and what its launchers start."""

import os
import sys
from pathlib import Path

from torchrun_slurm import hostfile, main, ssh, worker

if sys.argv[1:2] == [ssh.SESSION]:
    raise SystemExit(ssh.session(Path(sys.argv[2])))
if sys.argv[1:2] == [hostfile.DEEPSPEED]:
    raise SystemExit(hostfile.called_as_deepspeed(Path(sys.argv[2]), sys.argv[3:], os.environ))
if worker.is_worker(sys.argv[1:]):
    raise SystemExit(worker.run(sys.argv[1:]))
raise SystemExit(main.main(sys.argv[1:], dict(os.environ)))
