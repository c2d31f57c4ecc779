"""The environment in which Ansible runs: ours, whatever the caller's shell or directory contains."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from provision.content import ROOT

#: What a started Ansible may see of the caller's environment. Everything else stays behind: an ANSIBLE_* variable
#: can switch host key checking off, PYTHONPATH can replace a module, and secrets have no business in artifacts.
_ALLOWED = frozenset(
    {
        *("HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR", "NO_COLOR"),
        *("SSH_AUTH_SOCK", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
        # A site behind a proxy, or behind one that opens TLS with its own certificate.
        *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
        # Where the simulated machines' engine is.
        *("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"),
        # Where this computer's pip gets packages: those of a lab's machines come from there, too.
        *("PIP_CERT", "PIP_CONFIG_FILE", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_NO_INDEX"),
        *("LD_LIBRARY_PATH",),
    }
)


def clean_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a process of Ansible, made from ``environ`` (default: the caller's own).

    Ansible's programs are found beside the running interpreter even when that is not on PATH (as under pipx), the
    configuration is ours, and the locale is one that Ansible accepts and whose messages do not vary.
    """
    source = os.environ if environ is None else environ
    clean = {name: value for name, value in source.items() if name in _ALLOWED}
    programs = str(Path(sys.executable).parent)
    search = source.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    clean["PATH"] = os.pathsep.join([programs, *(part for part in search.split(os.pathsep) if part != programs)])
    clean["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")
    # Ansible refuses to start unless the locale's encoding is UTF-8; LC_ALL=C is not.
    clean["LC_ALL"] = "C.UTF-8"
    return clean


def ignored_settings(environ: Mapping[str, str] | None = None, directory: Path | None = None) -> list[str]:
    """Return what would have configured a plain Ansible here and has no effect, as text for one warning.

    ``environ`` defaults to the caller's environment, ``directory`` to the current one.
    """
    source = os.environ if environ is None else environ
    found = sorted(name for name in source if name.startswith("ANSIBLE_"))
    here = directory or Path.cwd()
    config = here / "ansible.cfg"
    # A checkout's own says what clusterctl uses anyway, also where another copy of it is installed.
    ours = (here / "provision" / "ansible_env.py").is_file() and (here / "playbooks" / "site.yml").is_file()
    if os.path.lexists(config) and not ours and config.resolve() != (ROOT / "ansible.cfg").resolve():
        found.append(str(config))
    return found
