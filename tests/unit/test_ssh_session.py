"""The judgement of what a machine's shell answered, and the words that the inventory uses for reaching it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from provision.ssh.session import answers, judge_session, probe_script, sweep_script
from provision.ssh.target import Target, settle

NODE = Target("node1", "10.0.18.11")


def judged(told: dict[str, str], *, target: Target = NODE, secret: str | None = None) -> tuple[str, str, str] | None:
    finding = judge_session(target, told, secret=secret)
    return None if finding is None else (finding.step, finding.verdict, finding.cause)


def told(**changes: str) -> dict[str, str]:
    return {"uid": "1000", "python": "3.11 /usr/bin/python3", "asked": "", "sudo": "0", **changes}


def test_a_machine_that_answers_everything_is_ready() -> None:
    assert judged(told()) is None
    assert judged({"uid": "0", "python": "3.11 python3", "asked": ""}) is None


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7"])
def test_a_python_that_ansible_cannot_use_is_named(version: str) -> None:
    result = judged(told(python=f"{version} /usr/bin/python3"))

    assert result is not None
    assert result[:2] == ("python", "fail")


@pytest.mark.parametrize(
    ("words", "password", "cause"),
    [
        ("1 sudo: a password is required", False, "none was given"),
        ("1 Sorry, try again. sudo: no password was provided sudo: 1 incorrect password attempt", True, "wrong"),
        ("1 admin is not in the sudoers file.", True, "may not become root"),
        ("127 /bin/sh: 1: sudo: not found", False, "not installed"),
        ("1 sudo: sorry, you must have a tty to run sudo", False, "terminal"),
        ("1 ", False, "refused"),
    ],
)
def test_why_sudo_refused_is_told(words: str, password: bool, cause: str) -> None:
    result = judged(told(sudo=words), secret="hunter2" if password else None)

    assert result is not None
    assert result[:2] == ("sudo", "fail")
    assert cause in result[2]


def test_a_sudo_that_never_answers_is_told_apart_from_one_that_refuses() -> None:
    answer = told()
    del answer["sudo"]

    finding = judge_session(NODE, answer)

    assert finding is not None
    assert "did not answer" in finding.observed


def test_another_way_to_root_is_skipped_with_the_reason() -> None:
    finding = judge_session(Target("node1", "node1", become_method="su"), told())

    assert finding is not None
    assert (finding.verdict, "su" in finding.source) == ("skip", True)


def test_a_password_that_only_ansible_can_open_is_left_to_ansible() -> None:
    vaulted = Target.from_hostvars("node1", {"ansible_become_password": {"__ansible_vault": "$ANSIBLE_VAULT;1.1"}})
    template = Target.from_hostvars("node1", {"ansible_become_password": "{{ vault_sudo }}"})

    for target in (vaulted, template):
        assert "sudo -H" not in probe_script(target, "@mark", password=False)
        assert judged({"uid": "1000", "python": "3.11 python3", "asked": ""}, target=target) == ("sudo", "skip", "")


def test_a_password_never_stands_in_a_command() -> None:
    target = Target("node1", "node1", become_password="hunter2")

    assert "hunter2" not in probe_script(target, "@mark", password=True) + repr(target)


def test_the_script_is_one_line_and_runs_in_a_plain_shell() -> None:
    script = probe_script(NODE, "@mark", password=False)

    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)

    assert "\n" not in script
    assert set(answers(done.stdout, "@mark")) >= {"uid", "python", "asked", "end"}


def test_the_sweeping_script_is_one_line_and_finds_nothing_to_end() -> None:
    script = sweep_script("@mark", "no-such-run")

    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)

    assert "\n" not in script
    assert answers(done.stdout, "@mark") == {"killed": "0", "left": "0"}


def test_connection_variables_are_read_as_ansible_reads_them() -> None:
    target = Target.from_hostvars(
        "node1",
        {
            "ansible_host": "10.0.18.11",
            "ansible_port": "2222",
            "ansible_ssh_user": "admin",
            "ansible_become": "false",
            "ansible_become_pass": "secret",
            "ansible_ssh_common_args": '-o ProxyJump=none -o "UserKnownHostsFile=/some where/known"',
        },
        user="other",
    )

    assert (target.address, target.port, target.user) == ("10.0.18.11", 2222, "admin")
    assert (target.become, target.become_password) == (False, "secret")
    assert "UserKnownHostsFile=/some where/known" in target.arguments()


def test_the_users_name_of_the_command_line_counts_where_the_inventory_has_none() -> None:
    assert Target.from_hostvars("node1", {}, user="other").user == "other"


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"ansible_connection": "local"}, "local"),
        ({"ansible_host": "{{ address }}"}, "templates"),
        ({"ansible_port": "ssh"}, "not a number"),
        ({"ansible_ssh_common_args": "-o 'unfinished"}, "cannot be split"),
    ],
)
def test_what_cannot_be_probed_says_why(variables: dict[str, object], reason: str) -> None:
    assert reason in Target.from_hostvars("node1", variables).skip


def test_a_name_that_looks_like_an_option_is_a_name(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    target = Target("evil", f"-oProxyCommand=touch {marker}", first_arguments=("-F", "/dev/null"))

    try:
        route = settle(target)
    except ValueError:
        route = None

    assert route is None or not route.proxy
    assert not marker.exists()


SECRET = "hunter2"

#: What a machine may print beside an answer, or instead of one; SECRET is what it was sent.
HOSTILE = {
    "echo": "hunter2\n",
    "pieces": "hun\rter2 h\nu\nn\nt\ne\nr\n2",
    "colours": "h\x1b[31mu\x1b[0mnter2 \x1b]0;title\x07\x1b[2J",
    "no width": "hu\u200bnt\u2060er2\u202e",
    "marks": "h-u-n-t-e-r-2 h.u.n.t.e.r.2",
    "binary": bytes(range(256)).decode(errors="replace") + "\ud800hunter2",
    "long": "hunter2 " * 100_000,
    "no newline": "password: hunter2",
    "prompt": "[sudo] password for admin: hunter2\nSorry, try again.\n[sudo] password for admin: ",
    "template": "{{ lookup('pipe', 'id') }} {% raw %} %(x)s {0.__class__} hunter2",
}


@pytest.mark.parametrize("printed", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    "answer",
    [{}, told(sudo="1 WORDS"), told(python="2.7 WORDS"), told(python="WORDS")],
    ids=lambda told: str(len(told)),
)
def test_what_a_machine_prints_is_quoted_short_plain_and_without_the_password(
    answer: dict[str, str], printed: str
) -> None:
    words = {word: rest.replace("WORDS", printed) for word, rest in answer.items()}

    finding = judge_session(NODE, words, secret=SECRET, printed=printed)

    assert finding is not None
    letters = "".join(filter(str.isalnum, finding.observed))
    assert SECRET not in letters
    assert finding.observed.isprintable()
    assert len(finding.observed) < 500


@pytest.mark.parametrize("version", ["9" * 5000 + ".1 x", "3.\u00b2 x", "3", "", "x.y z", "-3.11 python3"])
def test_a_version_of_python_that_is_none_is_no_crash(version: str) -> None:
    finding = judge_session(NODE, told(python=version))

    assert finding is not None
    assert finding.step == "python"
