"""The probe and the sweep against a real sshd, and against everything that is not one."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import paramiko
import pytest
from sshd import ADDRESS, Sshd, make_key, options, running
from waiting import PATIENCE as HANGS
from waiting import until
from worker import free_port

from provision.cli import node
from provision.errors import ClusterctlError
from provision.model.checks import PATIENCE, Check, Verdict
from provision.runner.process import marked
from provision.ssh import connect, reach, trust
from provision.ssh.reach import Target
from provision.ssh.target import settle


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def probe_one(variables: dict[str, object], *, timeout: float = 60) -> Check:
    """Return the check of one machine; what ends by itself has a minute, which a busy computer may need."""
    [check] = reach.probe([Target.from_hostvars("node1", variables)], timeout=timeout)
    return check


@contextmanager
def listener(*, greeting: bytes = b"") -> Iterator[int]:
    """A port that accepts connections and says ``greeting``, which may be nothing at all."""
    kept: list[socket.socket] = []

    def greet(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                kept.append(server.accept()[0])
                kept[-1].sendall(greeting)

    with socket.create_server((ADDRESS, 0)) as server:
        threading.Thread(target=greet, args=(server,), daemon=True).start()
        yield server.getsockname()[1]
    for connection in kept:
        connection.close()


def test_a_machine_that_can_be_used_is_ready_and_says_how_it_was_reached(sshd: Sshd) -> None:
    check = probe_one(sshd.hostvars())

    assert (check.id, check.verdict) == ("access.ready", Verdict.PASS), check
    assert check.observed.startswith(f"{sshd.user}@{ADDRESS}:{sshd.port}, Python 3.")


def test_a_name_without_address_is_named_as_that(sshd: Sshd) -> None:
    check = probe_one(sshd.hostvars(ansible_host="no-such-machine.invalid"))

    assert (check.id, check.verdict) == ("access.name", Verdict.FAIL)
    assert "no-such-machine.invalid" in check.observed
    assert "ansible_host" in check.fix


def test_a_closed_port_is_named_as_that(sshd: Sshd) -> None:
    port = free_port()

    check = probe_one(sshd.hostvars(ansible_port=port))

    assert (check.id, check.verdict) == ("access.port", Verdict.FAIL)
    assert f"{ADDRESS}:{port} refuses connections" in check.observed


def test_an_address_without_a_way_there_is_named_as_that(sshd: Sshd) -> None:
    check = probe_one(sshd.hostvars(ansible_host="255.255.255.255"))

    assert (check.id, check.verdict) == ("access.route", Verdict.FAIL), check


def test_a_machine_that_drops_our_packets_is_given_up_at_the_timeout(sshd: Sshd) -> None:
    # A full queue of pending connections makes the kernel drop further ones, as a dead machine would.
    with socket.create_server((ADDRESS, 0), backlog=0) as server, socket.socket() as filler:
        filler.connect(server.getsockname())
        check = probe_one(sshd.hostvars(ansible_port=server.getsockname()[1]), timeout=1.5)

    assert (check.id, check.verdict) == ("access.route", Verdict.FAIL), check
    assert "does not answer" in check.observed


def test_a_silent_listener_is_given_up_at_the_timeout(sshd: Sshd) -> None:
    with listener() as port:
        check = probe_one(sshd.hostvars(ansible_port=port), timeout=1.5)

    assert (check.id, check.verdict) == ("access.port", Verdict.FAIL)
    assert "says nothing" in check.observed


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"x" * 1_000_000, b"\0\xff\r\n" * 50])
def test_another_program_on_the_port_is_reported_without_a_traceback(
    sshd: Sshd, greeting: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with listener(greeting=greeting) as port:
        check = probe_one(sshd.hostvars(ansible_port=port), timeout=2)

    assert (check.id, check.verdict) == ("access.port", Verdict.FAIL), check
    assert "Traceback" not in "".join(capfd.readouterr())


def test_an_unknown_host_key_is_refused_with_its_fingerprint_before_the_user_is_named(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as server:
        server.known_hosts.write_text("")
        check = probe_one(server.hostvars())
        fingerprint = _fingerprint(tmp_path / "host_key.pub")
        log = server.log.read_text()

    assert (check.id, check.verdict) == ("access.host_key", Verdict.FAIL)
    assert check.observed == f"ssh-ed25519 {fingerprint}"
    assert "ssh-keyscan" in check.fix
    assert server.user not in log.replace(str(tmp_path), "")
    assert server.known_hosts.read_text() == ""


def test_another_machines_key_takes_the_place_of_the_old_one_after_it_was_compared(tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    with running(tmp_path) as server:
        held = " ".join(other.with_suffix(".pub").read_text().split()[:2])
        beside = f"another-machine {held}\n"
        server.known_hosts.write_text(f"{beside}[{ADDRESS}]:{server.port} {held}\n")
        target = Target.from_hostvars("node1", server.hostvars())
        route = settle(target)
        lines = trust.presented(route)

        assert not trust.trusted(lines, route)
        assert trust.fingerprints(lines, route) == [f"ssh-ed25519 {_fingerprint(tmp_path / 'host_key.pub')}"]
        with pytest.raises(ClusterctlError, match="not the one that was expected"):
            node.trust_machine(target, "SHA256:other")
        assert probe_one(server.hostvars()).id == "access.host_key"

        node.trust_machine(target, _fingerprint(tmp_path / "host_key.pub"))

        assert probe_one(server.hostvars()).id == "access.ready"
        assert server.known_hosts.read_text().startswith(beside)
        assert held not in server.known_hosts.read_text().replace(beside, "")


def test_a_changed_host_key_is_refused_with_both_fingerprints_before_any_credential_is_sent(
    tmp_path: Path,
) -> None:
    other = make_key(tmp_path / "other")
    with running(tmp_path) as server:
        held = " ".join(other.with_suffix(".pub").read_text().split()[:2])
        server.known_hosts.write_text(f"[{ADDRESS}]:{server.port} {held}\n")
        check = probe_one(server.hostvars())
        log = server.log.read_text()

    assert (check.id, check.verdict) == ("access.host_key", Verdict.FAIL)
    assert _fingerprint(tmp_path / "host_key.pub") in check.observed
    assert _fingerprint(other.with_suffix(".pub")) in check.expected
    assert "CHANGED" in check.cause
    assert "ssh-keygen -R" in check.fix
    assert "publickey" not in log
    assert server.user not in log.replace(str(tmp_path), "")


def test_a_second_known_key_of_the_same_kind_does_not_make_the_right_one_wrong(sshd: Sshd, tmp_path: Path) -> None:
    other = " ".join(make_key(tmp_path / "other").with_suffix(".pub").read_text().split()[:2])
    known = tmp_path / "known"
    known.write_text(f"[{ADDRESS}]:{sshd.port} {other}\n{sshd.known_hosts.read_text()}")

    check = probe_one(sshd.hostvars(ansible_ssh_common_args=options(known)))

    assert check.id == "access.ready", check


def test_a_hashed_entry_and_a_pattern_count_as_known(sshd: Sshd, tmp_path: Path) -> None:
    hashed, pattern = tmp_path / "hashed", tmp_path / "pattern"
    hashed.write_text(sshd.known_hosts.read_text())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(hashed)], check=True, capture_output=True)
    pattern.write_text(f"[127.0.0.*]:{sshd.port} " + sshd.known_hosts.read_text().partition(" ")[2])

    checks = [probe_one(sshd.hostvars(ansible_ssh_common_args=options(file))) for file in (hashed, pattern)]

    assert [check.id for check in checks] == ["access.ready", "access.ready"], checks


def test_a_revoked_host_key_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text(f"{sshd.known_hosts.read_text()}@revoked {sshd.known_hosts.read_text()}")

    check = probe_one(sshd.hostvars(ansible_ssh_common_args=options(known)))

    assert (check.id, check.verdict) == ("access.host_key", Verdict.FAIL)
    assert "revoked" in check.cause


def test_a_signed_host_key_is_left_to_openssh_and_says_so(sshd: Sshd, tmp_path: Path) -> None:
    authority = " ".join(make_key(tmp_path / "ca").with_suffix(".pub").read_text().split()[:2])
    known = tmp_path / "known"
    known.write_text(f"@cert-authority * {authority}\n")

    check = probe_one(sshd.hostvars(ansible_ssh_common_args=options(known)))

    assert (check.id, check.verdict) == ("access.host_key", Verdict.SKIP)
    assert "OpenSSH" in check.source


def test_a_wrong_key_is_named_with_what_was_tried(sshd: Sshd, tmp_path: Path) -> None:
    wrong = make_key(tmp_path / "wrong")

    check = probe_one(sshd.hostvars(ansible_ssh_private_key_file=str(wrong)))

    assert (check.id, check.verdict) == ("access.login", Verdict.FAIL)
    assert f"{wrong} (refused)" in check.observed
    assert "publickey" in check.cause
    assert check.fix.startswith(f"ssh-copy-id -i {wrong} -p {sshd.port} ")


def test_a_wrong_path_of_a_key_says_so(sshd: Sshd, tmp_path: Path) -> None:
    check = probe_one(sshd.hostvars(ansible_ssh_private_key_file=str(tmp_path / "id_ed25519x")))

    assert (check.id, check.verdict) == ("access.login", Verdict.FAIL)
    assert f"{tmp_path}/id_ed25519x (this file does not exist)" in check.observed
    assert (check.cause, check.fix) == ("that file is not there", "correct ansible_ssh_private_key_file")


def test_a_wrong_user_is_named(sshd: Sshd) -> None:
    check = probe_one(sshd.hostvars(ansible_user="nobody-here"))

    assert (check.id, check.verdict) == ("access.login", Verdict.FAIL)
    assert "user nobody-here" in check.observed


def test_a_key_that_cannot_be_used_says_why(sshd: Sshd, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", passphrase="secret phrase")
    open_to_all = make_key(tmp_path / "open")
    open_to_all.chmod(0o644)
    wanted = {locked: "ssh-add", open_to_all: "chmod 600"}

    for key, words in wanted.items():
        check = probe_one(sshd.hostvars(ansible_ssh_private_key_file=str(key)))

        assert (check.id, check.verdict) == ("access.login", Verdict.FAIL)
        assert words in check.observed
        assert "brackets" in check.cause


def test_a_computer_without_keys_is_to_make_one(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    arguments = f"{options(sshd.known_hosts)} -o IdentityFile={tmp_path}/none"
    variables = sshd.hostvars(ansible_ssh_common_args=arguments)
    del variables["ansible_ssh_private_key_file"]

    check = probe_one(variables)

    assert check.fix.startswith("ssh-keygen -t ed25519, then ssh-copy-id "), check


def test_the_agents_key_opens_the_account(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        until(path.exists, "the agent's socket")
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        subprocess.run(["ssh-add", "-q", str(sshd.client_key)], check=True, stderr=subprocess.DEVNULL)
        arguments = options(sshd.known_hosts).replace("IdentitiesOnly=yes", "IdentitiesOnly=no")

        check = probe_one(
            sshd.hostvars(ansible_ssh_common_args=arguments, ansible_ssh_private_key_file="/dev/null/none")
        )
    finally:
        agent.terminate()
        agent.wait()

    assert check.id == "access.ready", check


def test_an_agent_that_hangs_is_waited_for_within_the_timeout_and_then_done_without(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, waited = tmp_path / "agent", []

    def within(deadline: connect.Deadline, call: Any) -> Any:
        # The wait is a real one, and short, so that a busy computer has time for all the rest.
        waited.append((deadline.seconds, call))
        return real(connect.Deadline(0.2) if call is paramiko.Agent else deadline, call)

    real = connect.within
    monkeypatch.setattr(connect, "within", within)
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(path))
        agent.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        check = probe_one(sshd.hostvars(), timeout=60)
        agent.settimeout(60)
        agent.accept()[0].close()

    assert check.id == "access.ready", check
    assert (60, paramiko.Agent) in waited


def test_a_call_that_never_returns_is_given_up_when_no_time_is_left() -> None:
    never = threading.Event()

    try:
        with pytest.raises(TimeoutError):
            connect.within(connect.Deadline(0.05), never.wait)
    finally:
        never.set()


def test_a_login_that_runs_no_command_is_a_login_that_fails(tmp_path: Path) -> None:
    with running(tmp_path, "ForceCommand /bin/echo This account is currently not available.") as server:
        check = probe_one(server.hostvars())

    assert (check.id, check.verdict) == ("access.login", Verdict.FAIL)
    assert "not available" in check.observed


Asked = Callable[..., list[float]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Have machines that were reached be asked for so many seconds each time, and give the limits that were meant."""

    def within(*seconds: float) -> list[float]:
        limits: list[float] = []

        def deadline(meant: float) -> connect.Deadline:
            limits.append(meant)
            return connect.Deadline(seconds[len(limits) - 1])

        monkeypatch.setattr(reach, "Deadline", deadline)
        return limits

    return within


def test_a_login_that_hangs_is_tried_twice_within_bounds_and_is_called_slow_not_shut(
    asked: Asked, tmp_path: Path
) -> None:
    limits = asked(0.5, 0.5)
    with running(tmp_path, "ForceCommand /bin/sleep 600") as server:
        check = probe_one(server.hostvars())

    assert (check.id, check.verdict) == ("access.login", Verdict.FAIL)
    assert "did not answer in time" in check.observed
    assert "overloaded" in check.cause
    assert "usermod" not in check.fix
    assert limits == [60, 60 * PATIENCE]


def test_a_machine_that_is_busy_is_given_more_time(asked: Asked, tmp_path: Path) -> None:
    limits = asked(0.5, 60)
    busy = f'mkdir {tmp_path}/asked 2>/dev/null && sleep 600; eval "$SSH_ORIGINAL_COMMAND"'
    with running(tmp_path, f"ForceCommand {busy}") as server:
        check = probe_one(server.hostvars())

    assert check.id == "access.ready"
    assert limits == [60, 60 * PATIENCE]


def test_greetings_of_the_login_shell_are_not_taken_for_answers(tmp_path: Path) -> None:
    noisy = 'ForceCommand echo "uid 0"; echo "python 2.7"; printf "%s" "no newline"; echo; eval "$SSH_ORIGINAL_COMMAND"'
    with running(tmp_path, noisy) as server:
        check = probe_one(server.hostvars())

    assert check.id == "access.ready", check


def test_a_missing_interpreter_is_named(sshd: Sshd) -> None:
    check = probe_one(sshd.hostvars(ansible_python_interpreter="/opt/none/python3"))

    assert (check.id, check.verdict) == ("access.python", Verdict.FAIL)
    assert "/opt/none/python3" in check.observed


def test_a_machine_behind_a_jump_host_is_reached_the_way_ssh_would(sshd: Sshd, tmp_path: Path) -> None:
    configuration = tmp_path / "config"
    shared = f"UserKnownHostsFile {sshd.known_hosts}\n IdentityFile {sshd.client_key}\n User {sshd.user}\n"
    configuration.write_text(
        f"Host jump\n HostName {ADDRESS}\n Port {sshd.port}\n {shared}"
        f"Host behind\n HostName {ADDRESS}\n Port {sshd.port}\n ProxyJump jump\n {shared}"
    )

    reached = probe_one({"ansible_host": "behind", "ansible_ssh_common_args": f"-F {configuration}"})
    configuration.write_text(configuration.read_text().replace(f"Port {sshd.port}", f"Port {free_port()}", 1))
    lost = probe_one({"ansible_host": "behind", "ansible_ssh_common_args": f"-F {configuration}"})

    assert reached.id == "access.ready", reached
    assert (lost.id, lost.verdict) == ("access.route", Verdict.FAIL)
    assert "refused" in lost.observed.lower()


def test_what_is_not_reached_over_ssh_is_skipped_with_the_reason() -> None:
    check = probe_one({"ansible_connection": "local"})

    assert (check.id, check.verdict) == ("access.ready", Verdict.SKIP)
    assert "local" in check.source


def test_many_machines_are_probed_at_the_same_time_and_answered_in_their_order(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_there = threading.Barrier(12, timeout=HANGS)

    class AtOnce(connect.Connection):
        def __enter__(self) -> connect.Connection:
            all_there.wait()
            return super().__enter__()

    monkeypatch.setattr(reach, "Connection", AtOnce)
    closed = sshd.hostvars(ansible_port=free_port())
    targets = [Target.from_hostvars(f"node{n}", closed if n % 2 else sshd.hostvars()) for n in range(12)]

    checks = reach.probe(targets, timeout=60)

    assert [check.host for check in checks] == [target.name for target in targets]
    assert [check.id for check in checks] == ["access.ready", "access.port"] * 6, checks


def test_sweeping_ends_every_process_of_the_run_and_no_other(sshd: Sshd, tmp_path: Path) -> None:
    def start(run: str, program: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "CLUSTERCTL_RUN": run}
        return subprocess.Popen(["/bin/sh", "-c", program], env=environment, start_new_session=True)

    polite = start("20261121-abc", "sleep 3600")
    stubborn = start("20261121-abc", f"trap '' TERM; touch {tmp_path}/trapped; while :; do sleep 0.2; done")
    other = start("20261121-abcd", "sleep 3600")
    try:
        until((tmp_path / "trapped").exists)
        until(lambda: polite.pid in marked("20261121-abc"))
        ended = reach.sweep([Target.from_hostvars("node1", sshd.hostvars())], "20261121-abc", timeout=60)

        assert ended["node1"] >= 2
        assert polite.wait(timeout=HANGS) < 0
        assert stubborn.wait(timeout=HANGS) == -9
        assert other.poll() is None
    finally:
        for process in (polite, stubborn, other):
            process.kill()
            process.wait()


def test_sweeping_cuts_off_no_installation_of_packages(sshd: Sshd, tmp_path: Path) -> None:
    run, dpkg = "20261121-installs", tmp_path / "dpkg"
    shutil.copy("/bin/sleep", dpkg)
    environment = {**os.environ, "CLUSTERCTL_RUN": run}
    # A module that has apt install packages, and dpkg below it.
    words = ["/bin/sh", "-c", f"{dpkg} 3600; true"]
    module = subprocess.Popen(words, env=environment, start_new_session=True)
    target = Target.from_hostvars("node1", sshd.hostvars())
    try:
        until(lambda: len(marked(run)) == 2)
        assert reach.sweep([target], run, timeout=60) == {"node1": None}
        assert module.poll() is None

        subprocess.run(["pkill", "--full", str(dpkg)], check=True)
        module.wait(timeout=HANGS)
        assert reach.sweep([target], run, timeout=60) == {"node1": 0}
    finally:
        for process in marked(run):
            os.kill(process, signal.SIGKILL)


def test_sweeping_reports_nothing_for_a_machine_that_cannot_be_asked(sshd: Sshd) -> None:
    targets = [
        Target.from_hostvars("node1", sshd.hostvars()),
        Target.from_hostvars("node2", sshd.hostvars(ansible_port=free_port())),
    ]

    assert reach.sweep(targets, "run-1") == {"node1": 0}


@pytest.mark.parametrize("run_id", ["", "a b", "$(reboot)", "x\ny", "../x", "a" * 200])
def test_sweeping_refuses_what_is_not_a_run_identifier(run_id: str) -> None:
    with pytest.raises(ValueError, match="not a run identifier"):
        reach.sweep([], run_id)


def _fingerprint(public: Path) -> str:
    done = subprocess.run(["ssh-keygen", "-lf", str(public)], check=True, capture_output=True, text=True)
    return done.stdout.split()[1]
