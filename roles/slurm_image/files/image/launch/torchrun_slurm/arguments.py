# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""The command line: which words are torchrun-slurm's own, and what is said of those that are wrong."""

from __future__ import annotations

import argparse
import re
import shlex
from typing import Mapping, NoReturn

from torchrun_slurm.launcher import OURS
from torchrun_slurm.step import Refusal

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Parser(argparse.ArgumentParser):
    """One that says what is wrong with the words, and nothing before it: the help has a page."""

    def error(self, message: str) -> NoReturn:
        raise Refusal(re.sub("^argument ", "", message), HELP)


HELP = "torchrun-slurm --help says what it takes"


def parted(words: list[str], valued: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """Return torchrun-slurm's own options, a value in one word with its option, and the program with what is its own.

    A value may begin with a dash, which argparse takes for another option. "_" is "-", as for torchrun.

    Args:
        words: the command line.
        valued: the options, and whether each has a value.
    """
    own, at = [], 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        name, has, value = words[at].partition("=")
        name = name.replace("_", "-")
        if name not in valued:
            raise Refusal(*_unknown(words[at], name))
        at += 1
        if valued[name] and not has and at < len(words):
            has, value = "=", words[at]
            at += 1
        own.append(f"{name}{has}{value}")
    return own, words[at + (words[at : at + 1] == ["--"]) :]


def _unknown(word: str, name: str) -> tuple[str, str]:
    """Return what is said of an option that is not torchrun-slurm's own, and what to do."""
    if name in OURS:
        return f"{word}: what it says follows from the job", OURS[name]
    fix = f"{HELP}; an option of torchrun or deepspeed is handed on by --launcher-options={shlex.quote(word)}"
    return f"there is no option {word}", f"{fix}, one of PROGRAM stands behind it"


def count(text: str) -> int:
    """Return a number of workers."""
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text}: it must be a number; left out, it is that of the granted GPUs")
    return int(text)


def seconds(text: str) -> float:
    """Return a time of 90, 90s, 30m, 3h or 1d in seconds."""
    told = re.fullmatch(r"(\d+)([smhd]?)", text)
    if not told:
        raise argparse.ArgumentTypeError(f"{text}: a number and s, m, h or d, for example 3h")
    return float(told[1]) * UNITS[told[2]]
