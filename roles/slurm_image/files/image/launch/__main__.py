# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""torchrun-slurm; with ``--worker`` among the first two words (DeepSpeed puts one of its own first) what it starts."""

import os
import sys

from torchrun_slurm import main, worker

if "--worker" in sys.argv[1:3]:
    raise SystemExit(worker.run(sys.argv[1:]))
raise SystemExit(main.main(sys.argv[1:], dict(os.environ)))
