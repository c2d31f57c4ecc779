"""Why a program of an image could not be started. Asked in its container, where no other module can be imported."""

import errno
import os

ELF = b"\x7fELF"


def no_program(program, problem, image, path):
    """Return why a program could not be started, what to do, and the exit code that a shell has for it.

    ``path``: where it was looked for, as PATH has it.
    """
    found, begins = _begins(program, path)
    if problem.errno == errno.ENOEXEC:
        program = found or program
        if begins.startswith(ELF):
            return (
                f"{program} of {image} is for another architecture than {os.uname().machine}",
                "take an image for this node's architecture",
                126,
            )
        return f"{program} has no line #! that names its interpreter", "begin it with #!/bin/sh, or so", 126
    if isinstance(problem, FileNotFoundError):
        # Also where the program is there, and what the kernel would run it by is not.
        if begins.startswith(b"#!"):
            # Behind the first line of torchrun-slurm is an archive.
            line = begins[2:].split(b"\n")[0].decode(errors="replace").strip(" \t")
            interpreter = line.replace("\t", " ").split(" ")[0]
            missing = line if os.path.basename(interpreter) == "env" else interpreter
            return f"{image} has no {missing!r}, by which {found} is run (#!)", "take an image that has it", 127
        if found:
            return f"{image} has {found}, and not the loader that it was linked for", "take it from this image", 127
        return f"{image} has no {program}", "name a program of the image, or mount it (--container-mounts)", 127
    return f"{program}: {problem.strerror} in {image}", "look at its mode: ls -l, in the container", 126


def _begins(program, path):
    """Return where a program is, or nothing, and how it begins."""
    # As shutil.which, which each task would have to import that needs none of it.
    places = [program]
    if "/" not in program:
        places = [os.path.join(place, program) for place in (path or os.defpath).split(":")]
    found = next((place for place in places if os.access(place, os.X_OK)), "")
    try:
        with open(found, "rb") as stream:
            return found, stream.read(256)  # more of a first line the kernel does not read
    except OSError:  # it can be executed and not be read, as programs can and scripts cannot
        return found, ELF
