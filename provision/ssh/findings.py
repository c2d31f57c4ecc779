"""The sentences of the probe: for every way in which a connection can end, what was seen, why, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from provision.ssh.target import Route, Target


@dataclass(frozen=True)
class Finding:
    """A step that failed or could not be decided, without the host's name."""

    step: str
    observed: str
    expected: str
    cause: str
    fix: str
    verdict: str = "fail"
    source: str = ""


def left_out(step: str, observed: str, reason: str) -> Finding:
    """Return the finding of a step that was not tried, and says why."""
    return Finding(step, observed, "", "", "", verdict="skip", source=reason)


def no_settings(target: Target, error: Exception) -> Finding:
    """``ssh -G`` is missing or refused the options."""
    return Finding(
        "name",
        str(error),
        "an ssh command that accepts the inventory's options",
        "the OpenSSH client refused the connection's options or is missing",
        f"try it: ssh -G {target.address}; apt-get install -y openssh-client",
    )


def no_name(target: Target, route: Route, words: str) -> Finding:
    """The name has no address."""
    return Finding(
        "name",
        f"{route.host}: {words}",
        "an address for the name",
        "the name is not known on this computer",
        f"set ansible_host to the machine's address for {target.name}, or repair DNS",
    )


def no_connection(target: Target, route: Route, error: OSError, seconds: float) -> Finding:
    """TCP did not come about."""
    if isinstance(error, ConnectionRefusedError):
        return Finding(
            "port",
            f"{route.place} refuses connections",
            "an SSH server on that port",
            "the machine is up, but nothing listens there (or a firewall rejects)",
            f"on {target.name}'s console: systemctl start ssh; or correct ansible_port",
        )
    if isinstance(error, TimeoutError):
        return Finding(
            "route",
            f"{route.place} does not answer ({seconds:.0f} s)",
            "a connection",
            "the machine is off, has another address, or a firewall drops our packets",
            f"ping {route.host}; power the machine on, or correct ansible_host",
        )
    return Finding(
        "route",
        f"{route.place}: {error.strerror or error}",
        "a connection",
        "this computer has no route to that address, or the machine is off",
        f"ip route get {route.host}; power the machine on, or correct ansible_host or the network",
    )


def no_proxy(target: Target, route: Route, told: str) -> Finding:
    """The jump host, or what is behind it, did not connect us."""
    return Finding(
        "route",
        told or f"no answer from {route.place} through the jump host",
        f"SSH at {route.place} through a jump host",
        "the jump host or the way behind it",
        f"try it: ssh -v {target.address}",
    )


def no_ssh(target: Target, route: Route, error: Exception, seconds: float | None) -> Finding:
    """TCP came about, SSH did not; ``seconds`` is how long silence was listened to, None when it was not silence."""
    if seconds is not None:
        return Finding(
            "port",
            f"{route.place} accepts connections but says nothing ({seconds:.0f} s)",
            "the greeting of an SSH server",
            "sshd hangs, is overloaded, or another program listens there",
            f"on {target.name}'s console: systemctl status ssh; ss -ltnp",
        )
    return Finding(
        "port",
        f"{route.place} does not speak SSH to us: {error or 'it closed the connection'}",
        "an SSH server with algorithms we share",
        "another program listens there, or sshd refuses us",
        f"try it: ssh -v -p {route.port} {route.host}",
    )


def untrusted(route: Route, presented: str, held: str, file: Path | None, *, revoked: bool = False) -> Finding:
    """The host key is unknown (``held`` is empty), changed, or revoked."""
    file = file or next(iter(route.known_hosts), Path("~/.ssh/known_hosts"))
    scan = f"ssh-keyscan -p {route.port} {route.host} >> {file}"
    remove = f"ssh-keygen -R '{route.key_name}' -f {file} && " if held else ""
    if revoked:
        cause = "the host key is marked as revoked"
    elif held:
        cause = (
            "the machine's host key CHANGED: it was reinstalled, another machine has its address, "
            "or someone intercepts the connection"
        )
    else:
        cause = "no known_hosts file holds a key for this machine"
    return Finding(
        "host_key",
        presented,
        held or "a key that is already known",
        cause,
        "compare with 'ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub' on the machine's console; "
        f"only if they are equal: {remove}{scan}",
        source=str(file),
    )


def no_login(
    target: Target, route: Route, tried: list[str], allowed: str, *, offered: bool, undecided: bool
) -> Finding:
    """No key opened the account; ``offered`` when the machine saw one, ``undecided`` when only OpenSSH can try one."""
    key = target.key_file and Path(target.key_file).expanduser()
    if key and not key.exists():
        cause, fix = "that file is not there", "correct ansible_ssh_private_key_file"
    elif tried and not offered:
        cause = "no key could be tried, for the reason in brackets"
        fix = "do what the brackets say, or set ansible_ssh_private_key_file to another key"
    else:
        cause = (
            "the user does not exist there, or none of the keys is in its authorized_keys "
            f"(the server allows: {allowed or 'unknown'})"
        )
        copy = f"ssh-copy-id {f'-i {quote(str(key))} ' if key else ''}-p {route.port} {route.user}@{route.host}"
        fix = f"{copy}, or set ansible_user and ansible_ssh_private_key_file"
        if not tried:
            cause, fix = "this computer has no SSH key to log in with", f"ssh-keygen -t ed25519, then {fix}"
    return Finding(
        "login",
        f"user {route.user}: " + ("; ".join(tried) or "there was no key to try"),
        f"a login as {route.user} with a key",
        cause,
        fix,
        verdict="skip" if undecided else "fail",
        source="a key of a kind that only OpenSSH can use was not tried" if undecided else "",
    )
