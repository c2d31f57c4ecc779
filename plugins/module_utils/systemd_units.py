# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""When systemd last read its units. Standard library, Python 3.8."""

from __future__ import annotations

#: What to ask ``systemctl show --value`` for: at a reload, and at the start of the machine, which counts where there
#: was none. The clock is the kernel's, which is not 0 at the start of a container.
READ = "--property=UnitsLoadTimestampMonotonic,UnitsLoadFinishTimestampMonotonic"


def last_read(answer):
    """Return seconds of the monotonic clock, from systemctl's answer."""
    return max((int(moment) for moment in answer.split()), default=0) / 1e6
