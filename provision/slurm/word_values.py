"""What stands in lists of words such as SchedulerParameters: which words a release has, and their values. Pure.

Words and releases: :mod:`provision.slurm.word_table`. Of a value that is none Slurm logs an error, and goes on with its
default.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from provision.slurm.word_table import WORDS

_KNOWN = {
    **WORDS,
    "PropagateResourceLimitsExcept": WORDS["PropagateResourceLimits"],
    # No plugin any more, and still a word.
    "CliFilterPlugins": re.sub(r"\bnone:\S*", "none", WORDS["CliFilterPlugins"]),
    "StorageParameters": "SSL_CA SSL_CAPATH SSL_CERT SSL_CIPHER SSL_KEY",
}
#: What may stand before a word: a plugin's type, a limit's kind, of resources of a network adapter.
_BEFORE = re.compile(r"(job_submit/|cli_filter/|rlimit_|(?:def|max|res)_(?=(?:txqs|tgqs|eqs|cts|tles|ptes|les|acs)\b))")
#: Words of which the value is one of these.
_VALUES = {"autobind": ("none", "threads", "cores", "sockets"), "max_dbd_msg_action": ("discard", "exit")}
#: What a word's value is where it is a whole number, and where that is not all: time_str2secs(), strtod().
_FORMS = {"bf_interval": r"-1|0*[1-9]\d*", "delay_boot": r"-?\d+(:\d+){0,2}", "node_reg_mem_percent": r"\d+(\.\d+)?"}
#: Numbers that the manual page writes in another way.
_NUMBERS = {
    *("cred_expire", "ttl", "rl_bucket_size", "rl_log_freq", "rl_refill_period", "rl_refill_rate", "rl_table_size"),
    *("max_powered_nodes", "power_save_interval", "power_save_min_interval", "validate_nodeaddr_threads"),
    *("max_token_lifespan", "getnameinfo_cache_timeout", "suspend_grace_time", "default_queue_depth"),
}
_JOBS, _TEN_SECONDS = 1_000_000, 10_000_000
#: From which to which, where Slurm says so: src/plugins/sched/backfill/backfill.c, src/common/read_config.h. Otherwise
#: from 0, or -1, which is none.
_BOUNDS = {
    "bf_interval": (-1, 10_800),
    "bf_job_part_count_reserve": (0, 100_000),
    "bf_max_job_array_resv": (0, 1000),
    **dict.fromkeys(("bf_max_job_assoc", "bf_max_job_part", "bf_max_job_user", "bf_max_job_user_part"), (0, _JOBS)),
    "bf_max_job_start": (0, 10_000),
    "bf_max_job_test": (1, _JOBS),
    "bf_max_time": (1, 3600),
    "bf_min_age_reserve": (0, 2_592_000),
    "bf_resolution": (1, 3600),
    "bf_window": (1, 43_200),
    "bf_yield_interval": (1, _TEN_SECONDS),
    "bf_yield_sleep": (1, _TEN_SECONDS),
    "cred_expire": (5, 2**31 - 1),
    "default_queue_depth": (0, 2**31 - 1),
    "max_rpc_cnt": (0, 1000),
    "max_script_size": (0, 512 * 1024 * 1024),
    "max_submit_line_size": (0, 2 * 1024 * 1024),
}
#: Words that Slurm has looked for, and now logs as an error, since a release.
_DEFUNCT = {"cloud_reg_addrs": "23.11", "noaddrcache": "23.11"}
#: Words that releases had, or that turn on what is on anyway, with what to do.
_DEFAULT = {"fair_tree": "it is how Slurm computes shares without a word: remove it"}
#: A word that is looked for alone is on whatever its value.
_OFF = ("no", "false", "off", "disabled")
#: Each is all of the list: parse_rlimits() in src/common/slurm_rlimits_info.c.
_ALONE = {"PropagateResourceLimits": ("all", "none"), "PropagateResourceLimitsExcept": ("all", "none")}


def is_in(told: str, release: str) -> bool:
    """Tell whether a release is among those of ``24.11-``, ``-23.11`` or ``23.02-25.05``; all where nothing is told."""
    since, _, until = told.partition("-")
    return since <= release and (not until or release <= until)


def of_release(words: str, release: str) -> list[str]:
    """Return the words of a table that a release has."""
    told = (word.partition(":") for word in words.split())
    return [word for word, _, releases in told if is_in(releases, release)]


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the question for the word that is most like this one; empty where none is like it."""
    spelt = {one.lower(): one for one in words}
    near = difflib.get_close_matches(word.lower(), spelt, n=1, cutoff=cutoff)
    return f": did you mean {spelt[near[0]]}?" if near else ""


def has_words(name: str) -> bool:
    """Tell whether a parameter is a list of words that are known."""
    return name in _KNOWN


def wrong_word(name: str, given: Sequence[str], release: str) -> str:
    """Return what is wrong with the first word that the release does not look for, or does not take; empty for none."""
    table = {word.partition(":")[0].lower().removesuffix("=#"): word for word in _KNOWN[name].split()}
    here = {word.removesuffix("=#"): word.endswith("=#") for word in of_release(_KNOWN[name], release)}
    known = {word.lower(): number for word, number in here.items()}
    if len(given) > 1 and (alone := [word for word in given if word.lower() in _ALONE.get(name, ())]):
        return f"{alone[0]} stands alone, without other words"
    for item in given:
        if name == "AuthInfo" and item.startswith("/"):
            continue  # the socket's path alone, as before there were words
        word, is_set, value = _BEFORE.sub("", item.lower(), count=1).partition("=")
        if word in _DEFAULT and word not in known:
            return f"{item} is no word of it any more: {_DEFAULT[word]}"
        if word not in known:
            if word in table:
                since, _, until = table[word].rpartition(":")[2].partition("-")
                when = f"it came with {since}" if since > release else f"{until} was its last"
                return f"it has no word {item[:70]!r} in Slurm {release}: {when}"
            return f"it has no word {item[:70]!r}" + nearest(word, here, 0.7)
        if word in _DEFUNCT and release >= _DEFUNCT[word]:
            return f"{item} does nothing since {_DEFUNCT[word]}: remove it"
        if is_set and not value:
            return f"{item} has no value"
        if wrong := _wrong_value(item, word, value, number=known[word] or (word in _NUMBERS and bool(is_set))):
            return wrong
    return ""


def _wrong_value(item: str, word: str, value: str, *, number: bool) -> str:
    if values := _VALUES.get(word):
        return (
            ""
            if value in values
            else f"{item[:70]} must be {word}= and one of {', '.join(values)}" + nearest(value, values)
        )
    if not number:
        return f"{item[:70]} is on whatever its value: leave {word} out" if value in _OFF else ""
    if not re.fullmatch(_FORMS.get(word, r"-?\d+"), value):
        return f"{item[:70]} must be a number, as {word}=10"
    least, most = _BOUNDS.get(word, (-1, 2**32 - 1))
    if (word in _BOUNDS or word not in _FORMS) and not least <= int(value) <= most:
        return f"{item[:70]} must be a number from {least} to {most}"
    return ""
