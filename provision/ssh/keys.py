"""Keys on both sides of a connection: what known_hosts files hold for a machine, and what we can offer to it."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.pkey import UnknownKeyType

from provision.ssh.target import Route, Target

#: Said of a key whose kind paramiko does not know, such as one on a security token.
ONLY_OPENSSH = "only OpenSSH can use it"


@dataclass(frozen=True)
class KnownKey:
    """A host key that a known_hosts file holds for a machine."""

    kind: str
    blob: str
    file: Path
    revoked: bool = False
    authority: bool = False


def shown(key: paramiko.PKey) -> str:
    """Return kind and fingerprint as ``ssh-keygen -l`` prints them."""
    return f"{key.get_name()} {key.fingerprint}"


def known_keys(route: Route) -> Iterator[KnownKey]:
    """Yield the keys that known_hosts files hold for a machine, as OpenSSH's own search finds them.

    ``ssh-keygen -F`` knows hashed names, patterns and markers; nothing here parses host names.
    """
    for file in route.known_hosts:
        if not file.is_file():
            continue
        done = subprocess.run(
            ["ssh-keygen", "-F", route.key_name, "-f", str(file)],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
        )
        for line in done.stdout.splitlines():
            words = line.split()
            marker = words.pop(0) if words and words[0].startswith("@") else ""
            if len(words) >= 3 and not words[0].startswith("#"):
                yield KnownKey(words[1], words[2], file, marker == "@revoked", marker == "@cert-authority")


def fingerprint(known: KnownKey) -> str:
    """Return kind and fingerprint of a stored key, in the form of ``shown``."""
    done = subprocess.run(
        ["ssh-keygen", "-lf", "-"], input=f"{known.kind} {known.blob}\n", capture_output=True, text=True, check=False
    )
    words = done.stdout.split()
    return f"{known.kind} {words[1]}" if len(words) > 1 else known.kind


def _public(path: Path) -> str:
    try:
        words = path.with_name(f"{path.name}.pub").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return ""
    return words[1] if len(words) > 1 else ""


def _load(path: Path) -> paramiko.PKey | str:
    """Read a private key, or say in a few words why it cannot be used."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            return f"others may read it, so ssh refuses it: chmod 600 {path}"
        key = paramiko.PKey.from_path(str(path))
        certificate = path.with_name(f"{path.name}-cert.pub")
        if certificate.is_file():
            key.load_certificate(str(certificate))
    except (paramiko.PasswordRequiredException, TypeError):
        return "it has a passphrase: ssh-add it first"
    except OSError as error:
        return error.strerror or str(error)
    except (UnknownKeyType, paramiko.SSHException, ValueError):
        return ONLY_OPENSSH
    return key


def offered_keys(
    route: Route, target: Target, agent: Iterable[paramiko.PKey]
) -> Iterator[tuple[str, paramiko.PKey | str]]:
    """Yield what OpenSSH would try, in its order: the keys of ``agent``, then the identity files."""
    files = [path for path in route.identities if path.exists()]
    wanted = {_public(path) for path in files}
    for key in sorted(agent, key=lambda key: key.get_base64() not in wanted):
        if not route.identities_only or key.get_base64() in wanted:
            yield f"agent's {shown(key)}", key
    for path in route.identities:
        if path.exists():
            yield str(path), _load(path)
        elif target.key_file and path == Path(target.key_file).expanduser():
            yield str(path), "this file does not exist"
