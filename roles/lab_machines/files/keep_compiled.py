"""Keep what Python compiles out of archives: two fifths of what a task of Ansible's takes, whose modules come in one.

Real machines do that side by side. A lab's are processes of one computer, which does it for all of them, and an
emulated processor takes ten times as long. A text is found again by itself, so that a changed one is compiled; only
root keeps any.
"""
# Not pathlib, which each Python of the machine would load for it.

import _imp
import marshal
import os
import zipimport

#: A directory that is made with the machine's image.
PLACE = "/var/cache/clusterctl-lab/compiled"

compile_source = zipimport._compile_source  # type: ignore[attr-defined]


def compiled(pathname, source):
    """Return the code of a text, of which ``pathname`` only names the archive that it was in when it was compiled."""
    path = f"{PLACE}/{_imp.source_hash(len(source), source).hex()}"
    try:
        with open(path, "rb") as kept:  # noqa: PTH123
            return marshal.load(kept)  # noqa: S302 - root's own
    except (OSError, EOFError, ValueError, TypeError):
        code = compile_source(pathname, source)
    try:
        with open(f"{path}.{os.getpid()}", "xb") as new:  # noqa: PTH123
            marshal.dump(code, new)
        os.rename(new.name, path)  # noqa: PTH104
    except OSError:
        pass  # an ordinary user's Python, or a disk that is full
    return code


zipimport._compile_source = compiled  # type: ignore[attr-defined]
