"""What a worker of pytest-xdist has of its own, so that none takes it from another: its number, and ports."""

from __future__ import annotations

import itertools
import os
import socket

#: From 0 on; without pytest-xdist, as of one worker.
NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8

#: Below those that the kernel gives out by itself (ip_local_port_range), and above those of torchrun-slurm.
#: Other pytests on this computer have workers of the same number: each process begins at another one of its ports.
_OWN = range(30000 + 340 * NUMBER, 30000 + 340 * (NUMBER + 1), 2)
_PORTS = itertools.cycle([*_OWN[os.getpid() % len(_OWN) :], *_OWN[: os.getpid() % len(_OWN)]])


def free_port() -> int:
    """Return a port on which nothing listens now, nor on the one after it, and which nobody here is given soon again.

    Raises:
        RuntimeError: all are taken.
    """
    for port in itertools.islice(_PORTS, len(_OWN)):
        try:
            for one in (port, port + 1):
                socket.create_server(("", one)).close()
        except OSError:
            continue
        return port
    raise RuntimeError(f"all ports from {_OWN[0]} to {_OWN[-1]} are taken")
