"""Another host key for one machine, which a person has compared: for a machine that took another's place."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from provision.errors import ClusterctlError, ExitCode
from provision.ssh.keys import KnownKey, fingerprint, known_keys
from provision.ssh.target import Route

#: Seconds in which a machine shows its keys.
PATIENCE = 20


def presented(route: Route) -> list[str]:
    """Return the host keys that a machine presents now, as lines of a known_hosts file. Nothing is trusted by it.

    Raises:
        ClusterctlError: it presents none, as a machine that is down or behind a jump host.
    """
    words = ["ssh-keyscan", "-T", str(PATIENCE), "-p", str(route.port), route.host]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    keys = [line.split()[1:3] for line in done.stdout.splitlines() if len(line.split()) >= 3 and line[0] != "#"]
    if not keys:
        raise ClusterctlError(
            f"{route.place} presents no host key to this computer",
            fix=f"start the machine and its SSH server; behind a jump host, write its key into {route.known_hosts[0]}",
            exit_code=ExitCode.MACHINE_UNREACHABLE,
        )
    return [f"{route.key_name} {kind} {blob}" for kind, blob in keys]


def fingerprints(lines: Sequence[str], route: Route) -> list[str]:
    """Return kind and fingerprint of each line, as ``ssh-keygen -l`` prints them."""
    file = route.known_hosts[0]
    return [fingerprint(KnownKey(kind, blob, file)) for _, kind, blob in (line.split() for line in lines)]


def trusted(lines: Sequence[str], route: Route) -> bool:
    """Tell whether known_hosts files hold one of these keys for the machine."""
    held = {(key.kind, key.blob) for key in known_keys(route) if not key.revoked}
    return any((kind, blob) in held for _, kind, blob in (line.split() for line in lines))


def trust(lines: Sequence[str], route: Route) -> None:
    """Have known_hosts hold these keys for the machine, and no others.

    Raises:
        ClusterctlError: the file cannot be written.
    """
    for file in {key.file for key in known_keys(route) if not key.authority}:
        words = ["ssh-keygen", "-R", route.key_name, "-f", str(file)]
        subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    file = route.known_hosts[0]
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        with file.open("a", encoding="utf-8") as stream:
            stream.write("".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise ClusterctlError(f"{file} cannot be written: {error.strerror}", fix="free it, then try again") from None
