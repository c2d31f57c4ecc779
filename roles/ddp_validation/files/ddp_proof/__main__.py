# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Start one rank."""

from __future__ import annotations

import signal
import sys

# SIGTERM is answered by a thread of ours (Record.listen), because the main thread may sit inside a collective. The mask
# is inherited, so it must stand before torch, which the next import brings, starts its first thread.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

from ddp_proof.program import main  # noqa: E402

sys.exit(main())
