"""What is asked on a machine once the login works: one small shell script, and the judgement of its answer.

Pure: text in, text or a finding out. The scripts hold no secret; a sudo password travels on standard input.
"""

from __future__ import annotations

import re
import shlex

from provision.model.text import clean
from provision.ssh.findings import Finding, left_out
from provision.ssh.target import Target

#: Interpreters in the order in which Ansible 2.19 looks for one, then what it falls back to.
_PYTHONS = (*(f"python3.{minor}" for minor in range(13, 7, -1)), "/usr/bin/python3", "python3")

#: The oldest Python that ansible-core 2.19 supports on a managed machine.
OLDEST_PYTHON = (3, 8)

#: What an honest machine says of its Python: version and path.
_PYTHON = re.compile(r"([0-9]{1,3})\.([0-9]{1,3}) (.+)")

#: Characters of what a machine printed that a finding quotes.
_QUOTED = 300

#: Run identifiers go into a shell script, so they are refused rather than quoted.
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def root_command(target: Target, script: str, *, password: bool) -> str:
    """Return the shell command that runs ``script`` as root the way Ansible would."""
    how = '-S -p ""' if password else "-n"
    return f"sudo -H {how} -u root /bin/sh -c {shlex.quote(script)}"


def probe_script(target: Target, mark: str, *, password: bool) -> str:
    """Return a one-line command that reports user, Python and sudo, each line beginning with ``mark``.

    One line, because some login shells refuse a quoted newline; the mark, because some print greetings.
    """
    pythons = " ".join(shlex.quote(word) for word in ([target.python] if target.python else _PYTHONS))
    version = "import sys; print('%d.%d' % sys.version_info[:2])"
    steps = [
        "LC_ALL=C; export LC_ALL",
        f'echo "{mark} uid $(id -u)"',
        f'for p in {pythons}; do if v=$("$p" -c {shlex.quote(version)} 2>/dev/null); '
        f'then echo "{mark} python $v $p"; break; fi; done',
        f'echo "{mark} asked"',
    ]
    if target.become and target.become_method == "sudo" and not target.become_sealed:
        asked = root_command(target, ":", password=password)
        steps.append(
            f'if [ "$(id -u)" -ne 0 ]; then e=$({asked} 2>&1); s=$?; '
            f"echo \"{mark} sudo $s $(echo \"$e\" | tr '\\n' ' ' | cut -c1-300)\"; fi"
        )
    steps.append(f'echo "{mark} end"')
    return f"exec /bin/sh -c {shlex.quote('; '.join(steps))}"


def answers(output: str, mark: str) -> dict[str, str]:
    """Return the marked lines of a session as word and rest; whatever else was printed does not count."""
    found: dict[str, str] = {}
    for line in output.splitlines():
        if line.startswith(f"{mark} "):
            word, _, rest = line[len(mark) + 1 :].partition(" ")
            found[word] = rest.strip()
    return found


def wants_password(told: dict[str, str]) -> bool:
    """Tell whether sudo asked for a password; a machine that does not say so is not sent one."""
    return any(words in told.get("sudo", "").lower() for words in ("password is required", "password was provided"))


def quoted(words: str, secret: str | None) -> str:
    """Return what a machine printed as one short line for people, with ``secret`` blanked out.

    Also where something stands between its letters: ends of lines, colours, characters without width.
    """
    text = " ".join(clean(words, limit=len(words)).split())
    letters = [re.escape(letter) for letter in clean(secret or "") if not letter.isspace()]
    if letters:
        text = re.sub(r"[\W_]*?".join(letters), "***", text)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."


def judge_session(
    target: Target, told: dict[str, str], *, secret: str | None = None, printed: str = "", late: bool = False
) -> Finding | None:
    """Judge what the probe's script reported; None when the machine is ready for Ansible.

    ``secret`` is the password that was sent, None where none was. Nothing that the finding quotes holds it. ``late``:
    the time was over before the machine had ended its answer, so that what is missing may have been on its way.
    """
    if "uid" not in told:
        if late:
            return _silent(target, "login", "the machine logged us in, then did not answer in time")
        said = quoted(printed, secret)
        return Finding(
            "login",
            f"the account runs no command: {said}" if said else "the account runs no command",
            "a shell for this user",
            "the login shell or a forced command ends the session",
            f"give the user a shell on {target.name}: sudo usermod -s /bin/bash USER",
        )
    if "asked" not in told:
        return _silent(target, "python", "the machine logged us in, then did not answer")
    if "python" not in told:
        if late:
            return _silent(target, "python", "the machine did not say in time which Python it has")
        wanted = target.python or "python3"
        return Finding(
            "python",
            f"no {wanted} that runs",
            f"Python {_dotted(OLDEST_PYTHON)} or newer",
            "Ansible's modules need Python on the machine" if not target.python else "ansible_python_interpreter",
            f"on {target.name}: sudo apt-get install -y python3, or set ansible_python_interpreter",
        )
    python = _PYTHON.fullmatch(told["python"])
    if python is None:
        said = quoted(told["python"], secret)
        return _silent(target, "python", f"the machine does not say which Python it has, but: {said}")
    if (int(python[1]), int(python[2])) < OLDEST_PYTHON:
        return Finding(
            "python",
            f"Python {python[1]}.{python[2]} ({quoted(python[3], secret)})",
            f"Python {_dotted(OLDEST_PYTHON)} or newer",
            "ansible-core 2.19 does not support this Python",
            "install a newer Python or operating system",
        )
    if told["uid"] == "0" or not target.become:
        return None
    if target.become_sealed:
        return left_out("sudo", "logged in", "not tried: its password for sudo is encrypted or a template")
    if target.become_method != "sudo":
        reason = f"not tried: only sudo is, and ansible_become_method is {target.become_method}"
        return left_out("sudo", f"become method {target.become_method}", reason)
    if "sudo" not in told:
        return _silent(target, "sudo", "sudo did not answer")
    status, _, words = told["sudo"].partition(" ")
    return None if status == "0" else _refused(target, words, secret)


def _refused(target: Target, words: str, secret: str | None) -> Finding:
    said = quoted(words, secret) or "sudo said nothing"
    lower = words.lower()
    if "not found" in lower:
        cause, fix = "sudo is not installed", f"on {target.name} as root: apt-get install -y sudo"
    elif "not in the sudoers" in lower or "not allowed" in lower or "may not run" in lower:
        cause = "the user may not become root"
        fix = f"on {target.name} as root: adduser USER sudo, or add a sudoers rule"
    elif secret is not None and ("incorrect password" in lower or "try again" in lower):
        cause = "the sudo password is wrong; one attempt was made on this host, no more will be"
        fix = "run again with -K and the right password"
    elif "a password is required" in lower or "no password was provided" in lower:
        cause, fix = "sudo asks for a password and none was given", "run again with -K (--ask-become-pass)"
    elif "tty" in lower:
        cause, fix = "sudo demands a terminal", f"on {target.name}: remove requiretty from sudoers for this user"
    else:
        cause, fix = "sudo refused", f"on {target.name}: sudo -n true, and read what it says"
    return Finding("sudo", said, "root through sudo", cause, fix)


def _silent(target: Target, step: str, what: str) -> Finding:
    return Finding(
        step,
        what,
        "an answer",
        "the machine is overloaded, or its login or sudo waits for something (LDAP, a disk)",
        f"log in and look: ssh {target.address}; then uptime, sudo -n true",
    )


def sweep_script(mark: str, run_id: str) -> str:
    """Return a script that ends every process carrying ``CLUSTERCTL_RUN=<run_id>`` and reports how many.

    TERM first, KILL for what is left after 2 s, again while new ones appear: a shell being killed may have just forked.
    Where one of them installs packages or builds a kernel module, none is ended: a machine cut off there may not boot.

    Raises:
        ValueError: the run identifier has characters that do not belong into one.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise ValueError(f"not a run identifier: {run_id!r}")
    find = f"grep -lzx CLUSTERCTL_RUN={run_id} /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | tr '\\n' ' '"
    uncut = "dpkg|dkms|update-initramf"  # as /proc/PID/comm has them, 15 characters
    return (
        f"f() {{ {find}; }}; all=$(f); n=0; "
        f"for p in $all; do case $(cat /proc/$p/comm 2>/dev/null) in {uncut}) n=$((n+1)) ;; esac; done; "
        f'if [ $n -gt 0 ]; then echo "{mark} installing $n"; exit; fi; '
        "kill -TERM $all 2>/dev/null; i=0; p=$(f); "
        'while [ -n "$p" ] && [ $i -lt 10 ]; do sleep 0.2; i=$((i+1)); p=$(f); done; i=0; '
        'while [ -n "$p" ] && [ $i -lt 5 ]; do all="$all $p"; kill -KILL $p 2>/dev/null; sleep 0.1; '
        "i=$((i+1)); p=$(f); done; "
        f'echo "{mark} killed $(echo $all | tr " " "\\n" | sort -u | grep -c .)"; echo "{mark} left $(echo $p | wc -w)"'
    )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(str(part) for part in version)
