"""Why a program of an image could not be started. Asked in its container, where no other module can be imported."""

import errno
import os


def no_program(program, problem, image, path):
    """Return why a program could not be started, what to do, and the exit code that a shell has for it.

    ``path``: where it was looked for, as PATH has it.
    """
    if problem.errno == errno.ENOEXEC:
        # As shutil.which, which each task would have to import that needs none of it.
        places = (
            [os.path.join(place, program) for place in (path or os.defpath).split(":")] if "/" not in program else []
        )
        program = next((place for place in places if os.access(place, os.X_OK)), program)
        try:
            with open(program, "rb") as stream:
                foreign = stream.read(4) == b"\x7fELF"
        except OSError:  # it can be executed and not be read, as programs can and scripts cannot
            foreign = True
        if foreign:
            return (
                f"{program} of {image} is for another architecture than {os.uname().machine}",
                "take an image for this node's architecture",
                126,
            )
        return f"{program} has no line #! that names its interpreter", "begin it with #!/bin/sh, or so", 126
    if isinstance(problem, FileNotFoundError):
        return f"{image} has no {program}", "name a program of the image, or mount it (--container-mounts)", 127
    return f"{program}: {problem.strerror} in {image}", "look at its mode: ls -l, in the container", 126
