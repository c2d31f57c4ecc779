# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""torchrun-slurm, and what its launchers start."""

import os
import sys

from torchrun_slurm import main, worker

if worker.is_worker(sys.argv[1:]):
    raise SystemExit(worker.run(sys.argv[1:]))
raise SystemExit(main.main(sys.argv[1:], dict(os.environ)))
