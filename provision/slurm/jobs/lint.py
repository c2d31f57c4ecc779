"""The mistakes that public templates make, looked for in a user's own job script."""

from __future__ import annotations

import re

from provision.slurm.jobs import containers, ending, files, hiding, launch, nccl, running
from provision.slurm.jobs.finding import Finding, Rule
from provision.slurm.jobs.script import script

#: Each mistake by its name. Where they were found: the templates of clouds, of frameworks and of guides.
RULES: dict[str, Rule] = {
    "fixed-port": launch.fixed_port,
    "port-per-node": launch.port_per_node,
    "hostname-endpoint": launch.hostname_endpoint,
    "squared-workers": launch.squared_workers,
    "hidden-failure": hiding.hidden_failure,
    "hanging-step": running.hanging_step,
    "lost-work": running.lost_work,
    "ungranted-gpus": containers.ungranted_gpus,
    "container-limits": containers.container_limits,
    "baked-nccl": nccl.baked_nccl,
    "left-from-debugging": nccl.left_from_debugging,
    "one-nccl-log": nccl.one_nccl_log,
    "moving-tag": containers.moving_tag,
    "cpus-not-inherited": launch.cpus_not_inherited,
    "one-thread": launch.one_thread,
    "ulimit-here": running.ulimit_here,
    "default-memory": running.default_memory,
    "image-on-sbatch": containers.image_on_sbatch,
    "separate-jobs": launch.separate_jobs,
    "shared-file": files.shared_file,
    "unclosed": ending.unclosed,
}


#: Of a script that knows better: "# lint-job: ignore NAME, NAME", anywhere in it.
_IGNORE = re.compile(r"^[ \t]*#.*\blint-job: ignore ([a-z-]+(?:[ \t]*,[ \t]*[a-z-]+)*)", re.MULTILINE)


def findings(text: str) -> list[Finding]:
    """Return the mistakes in a job script, by line; the same mistake of a line once. What it says to ignore is none."""
    read = script(text)
    ignored = {name.strip() for names in _IGNORE.findall(text) for name in names.split(",")}
    found: dict[tuple[int, str, str], Finding] = {}
    for name, rule in RULES.items():
        if name in ignored:
            continue
        for line, problem, effect, better in rule(read):
            found.setdefault((line, name, problem), Finding(line, name, problem, effect, better))
    return sorted(found.values(), key=lambda one: (one.line, list(RULES).index(one.name)))
