"""The container engine and the registry: what they answer, and what it means when they do not."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest

from provision.judge import engine, images, road
from provision.model.checks import Check
from provision.model.facts import facts_from

GOOD: dict[str, Any] = {
    "version": "20.10.24+dfsg1",
    "raises_limits": True,
    "server": "20.10.24",
    "live_restore": True,
    "problem": "",
    "late": False,
    "limit": 10,
}
PEM = "-----BEGIN CERTIFICATE-----\nAbc+/=\n-----END CERTIFICATE-----\n"
SITE = "harbor.site.example/x"


ENGINE_WANTS = {"live_restore": True, "wanted": {"live-restore": True}, "addresses": []}


def judged(
    said: dict[str, Any] | None = None, live_restore: bool = True, service: str = "loaded", **wants: Any
) -> dict[str, Check]:
    """Return an engine's checks by name; every one of them is always there."""
    own = {**ENGINE_WANTS, "live_restore": live_restore, "wanted": {"live-restore": live_restore}, **wants}
    facts = facts_from({"engine": {**GOOD, **(said or {})}})
    facts["state"] = {"services": {"docker": {"load": service}}}  # type: ignore[typeddict-item]
    found = engine.checks(facts, own)
    assert sorted(check.id for check in found) == sorted((*engine.BEFORE.ids, *engine.SUBJECT.ids))
    assert all(check.before is (check.id in engine.BEFORE.ids) for check in found)
    return {check.id.partition(".")[2]: check for check in found}


def refused(name: str, said: dict[str, Any] | None = None, **wants: Any) -> str:
    """Return what is refused of an engine, and what to do; empty for nothing."""
    check = judged(said, **wants)[name]
    return "" if check.ok else f"{check.observed}. Fix: {check.fix}"


def test_an_engine_with_its_configuration_passes() -> None:
    assert {str(check.verdict) for check in judged().values()} == {"pass"}


def test_an_engine_that_hangs_is_unknown_with_the_limit_it_had() -> None:
    found = judged({"late": True, "server": "", "live_restore": None, "problem": "did not answer in 10 s"})

    assert (str(found["answers"].verdict), found["answers"].observed) == ("unknown", "did not answer in 10 s")
    assert "dockerd hangs" in found["answers"].cause
    # What nobody said is no pass, and the first of the two says why.
    assert (str(found["live_restore"].verdict), found["live_restore"].unproven) == ("skip", True)


@pytest.mark.parametrize("problem", ["Cannot connect to the Docker daemon.", "docker: No such file or directory"])
def test_an_engine_that_is_not_running_or_not_installed_fails_with_those_words(problem: str) -> None:
    found = judged({"server": "", "live_restore": None, "problem": problem})

    assert (str(found["answers"].verdict), found["answers"].cause) == ("fail", problem)


def test_an_engine_with_another_configuration_than_its_files_fails_in_that() -> None:
    found = judged({"live_restore": False})

    assert (str(found["answers"].verdict), str(found["live_restore"].verdict)) == ("pass", "fail")
    assert str(judged({"live_restore": False}, live_restore=False)["live_restore"].verdict) == "pass"
    assert str(judged({"live_restore": None})["live_restore"].verdict) == "fail"


def test_an_engine_of_which_nothing_was_said_is_unknown() -> None:
    found = engine.checks(facts_from({}), ENGINE_WANTS)

    assert [str(check.verdict) for check in found] == ["unknown"] * 5


@pytest.mark.parametrize(
    ("file", "problem", "fix"),
    [
        ({"userns-remap": "default"}, "userns-remap: no container could share", "{userns-remap: null}, which hides"),
        ({"no-new-privileges": True}, "jobs could not become another user", "{no-new-privileges: false}"),
        ({"default-runtime": "runsc"}, "default-runtime runsc shares neither", "{default-runtime: runc}"),
        ({"live-restore": False}, "would end with each restart", "{live-restore: true}, or false to keep it so"),
        ({"hosts": ["tcp://0.0.0.0"]}, "hosts in /etc/docker/daemon.json, and in dockerd's", "{hosts: null}"),
        ({"proxies": {"http-proxy": "http://a:b@proxy"}}, "a password stands in a URL", "drop-in of docker.service"),
    ],
)
def test_what_slurm_could_not_live_with_is_refused_with_the_variable_that_decides(
    file: dict[str, Any], problem: str, fix: str
) -> None:
    told = refused("configuration", {"flags": ["H", "containerd"]}, wanted={"live-restore": True, **file})

    assert problem in told
    assert fix in told
    assert "a:b" not in told


@pytest.mark.parametrize(
    "file",
    [
        {"default-runtime": "nvidia", "cgroup-parent": "site.slice", "exec-opts": ["native.cgroupdriver=cgroupfs"]},
        {"no-new-privileges": False, "userns-remap": "", "hosts": ["fd://"], "storage-driver": "zfs"},
    ],
)
def test_what_does_no_harm_is_the_sites(file: dict[str, Any]) -> None:
    for name in engine.BEFORE.names:
        assert refused(name, {"daemon": file, "kept": 3}, wanted={"live-restore": True, **file}) == ""


def test_a_file_that_nobody_can_read_is_one_line_with_its_place() -> None:
    told = refused("configuration", {"daemon_problem": "Extra data: line 3 column 1 (char 40)"})

    assert told.startswith("/etc/docker/daemon.json cannot be read: Extra data: line 3")
    assert "correct it on the machine" in told
    assert "a password stands in a URL" in refused("configuration", {"secret": True})
    assert "--config-file" in refused("configuration", {"flags": ["config-file"]})


def test_live_restore_of_the_command_line_counts_as_the_engine_runs_with_it() -> None:
    assert refused("configuration", {"flags": ["live-restore"]}, wanted={}) == ""
    assert "is on, with which no engine" in refused("configuration", {"flags": ["live-restore"]}, live_restore=False)
    assert "is off" in refused("configuration", wanted={})


@pytest.mark.parametrize(
    ("said", "wanted", "words"),
    [
        ({}, {}, ""),
        ({"daemon": {"data-root": "/data"}}, {"data-root": "/data/"}, ""),
        ({}, {"data-root": "/data"}, ""),  # /var/lib/docker is a link to it
        ({"kept": 0}, {"data-root": "/new"}, ""),
        ({}, {"data-root": "/new"}, "with data-root /new the engine would not have its 5 containers and images"),
        ({"daemon": {"data-root": "/data"}}, {}, "container_engine_options: {data-root: /data}"),
        ({}, {"storage-driver": "overlay2"}, ""),
        ({}, {"storage-driver": "zfs"}, "container_engine_options: {storage-driver: overlay2}"),
    ],
)
def test_nothing_that_the_engine_has_is_hidden(said: dict[str, Any], wanted: dict[str, Any], words: str) -> None:
    there = {"kept": 5, "data_root": "/data", "driver": "overlay2", **said}

    told = refused("kept", there, wanted={"live-restore": True, **wanted})

    assert words in told
    assert bool(words) == bool(told)


def test_an_engine_that_no_package_here_could_stand_beside_is_refused() -> None:
    assert "snap" in refused("kept", {"version": ""})
    assert "no service docker" in refused("kept", service="not-found")
    assert refused("kept", {"version": "", "server": ""}, service="not-found") == ""


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ({"bip": "10.0.0.1/16"}, "bip 10.0.0.1/16 has 10.0.18.11"),
        ({"fixed-cidr": "10.0.18.0/24"}, "fixed-cidr 10.0.18.0/24 has 10.0.18.11"),
        ({"default-address-pools": [{"base": "10.0.0.0/8", "size": 24}]}, "default-address-pools 10.0.0.0/8 has"),
        ({"default-address-pools": []}, "each of Docker's own pools"),
        ({"default-address-pools": [7, {}], "bip": "10.9.0.1/24"}, ""),
    ],
)
def test_a_network_of_the_sites_that_has_a_machines_address_is_refused(file: dict[str, Any], words: str) -> None:
    told = refused("addresses", wanted={"live-restore": True, **file}, addresses=["10.0.18.11"])

    assert words in told
    assert bool(words) == bool(told)
    assert not words or "container_engine_options: {" in told


def test_the_role_refuses_in_the_same_words_what_preflight_was_not_asked() -> None:
    facts = facts_from({"engine": {**GOOD, "daemon_problem": "Extra data"}})

    (told,) = engine.refusals(facts["engine"], ENGINE_WANTS)

    assert told.startswith("container_engine_options: /etc/docker/daemon.json cannot be read: Extra data. Fix: correct")


@pytest.mark.parametrize(
    "said",
    [
        {"server": 7},
        {"server": ["20"]},
        {"live_restore": "{{ true }}"},
        {"version": "20; reboot"},
        {"limit": 10**30},
        {"late": "no"},
    ],
    ids=str,
)
def test_nonsense_from_a_machine_does_not_pass_the_door(said: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot be used"):
        facts_from({"engine": {**GOOD, **said}})


WANTS: dict[str, Any] = {
    **{"registry": "", "controller": "head", "here": False, "answers": True, "away": False},
    **{"username": "", "password": "", "mirror": "", "mirrors": False, "users": ""},
}


def images_of(told: dict[str, Any] | None, **wants: Any) -> dict[str, Check]:
    """Return the checks of a machine's way to the registry, by name; every one of them is always there."""
    facts = facts_from({} if told is None else {"registry": told})
    found = images.checks(facts, {**WANTS, **wants})
    assert tuple(check.id for check in found) == images.SUBJECT.ids
    return {check.id.partition(".")[2]: check for check in found}


def registry(told: dict[str, Any], site: str = "") -> Check:
    return images_of(told, registry=site)["registry_answers"]


def test_a_registry_that_answers_passes_and_only_a_sites_may_ask_for_a_login() -> None:
    assert registry({"status": 200}).ok
    assert registry({"status": 401}, SITE).ok
    assert not registry({"status": 401}).ok


def test_a_registry_that_does_not_answer_is_told_with_the_reason_and_who_runs_it() -> None:
    ours = registry({"error": "it does not answer: timed out"})
    theirs = registry({"status": 500}, SITE)

    assert "timed out" in ours.observed
    assert "docker-registry on head" in ours.fix
    assert (theirs.observed, theirs.fix) == ("HTTP 500", f"ask those who run {SITE}")
    assert (registry({}).ok, registry({}).observed) == (False, "no answer")


@pytest.mark.parametrize("told", [{"status": "200"}, {"status": True}, {"status": -1}, {"error": 7}], ids=str)
def test_nonsense_instead_of_http_does_not_pass_the_door(told: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot be used"):
        registry(told)


def test_a_registry_that_is_down_is_the_failure_of_its_own_machine_and_not_of_all() -> None:
    silent = {"error": "it does not answer: refused"}

    check = images_of(silent, answers=False)["registry_answers"]
    assert (str(check.verdict), check.unproven, "on head itself" in check.observed) == ("skip", True, True)
    assert images_of({"status": 200}, answers=False)["registry_answers"].verdict == "pass"
    for wants in ({"answers": None}, {"answers": False, "here": True}, {"answers": False, "registry": SITE}):
        assert str(images_of(silent, **wants)["registry_answers"].verdict) == "fail"


def test_a_registry_of_which_nothing_was_said_is_unknown() -> None:
    assert {str(check.verdict) for check in images_of(None).values()} == {"unknown"}


def certified(**told: Any) -> Check:
    return images_of({"status": 200, "certificates": told} if told else {"status": 200}, here=True)["certificates"]


def test_certificates_are_judged_where_the_registry_runs_and_nowhere_else() -> None:
    assert str(certified(authority=PEM, problem="").verdict) == "pass"
    assert str(certified(authority="", problem="there is no server.key").verdict) == "fail"
    assert str(certified(authority=PEM, problem=None).verdict) == "unknown"
    assert str(certified().verdict) == "unknown"
    # What is missing is said by the check of packages, and nothing is made anew for it.
    unjudged = certified(authority=PEM, problem="", unjudged="openssl is not installed")
    assert (str(unjudged.verdict), unjudged.unproven) == ("skip", True)
    assert str(images_of({"status": 200})["certificates"].verdict) == "skip"
    assert str(images_of({"status": 200}, here=True, registry=SITE)["certificates"].verdict) == "skip"


@pytest.mark.parametrize(
    ("problem", "told"), [("", {"authority": PEM}), ("it expires", {"authority": ""}), (None, {})], ids=str
)
def test_an_authority_goes_on_to_those_who_trust_it_and_a_bad_one_makes_them_wait_for_the_next(
    problem: str | None, told: dict[str, str]
) -> None:
    facts = facts_from({"registry": {"status": 200, "certificates": {"authority": PEM, "problem": problem}}})

    assert road.handed_on(facts)["cluster_shared"] == {"registry": True, **told}


def login(told: dict[str, str] | None, password: str = "correct horse") -> Check:  # noqa: S107 - nobody's
    said = {"status": 401} if told is None else {"status": 401, "login": told}
    return images_of(said, registry=SITE, username="robot", password=password)["login"]


def hashed(password: str, salt: str = "00ff") -> dict[str, str]:
    """Return what a machine answers that logs in as robot with this password."""
    known = base64.b64encode(f"robot:{password}".encode())
    digest = hmac.new(bytes.fromhex(salt), known, hashlib.sha256).hexdigest()
    return {"salt": salt, "user": "robot", "fingerprint": digest}


def test_a_login_is_compared_by_a_hash_and_the_password_is_in_no_check() -> None:
    checks = [login(hashed("correct horse")), login(hashed("wrong")), login({"absent": "no login"}), login(None)]

    assert [str(check.verdict) for check in checks] == ["pass", "fail", "fail", "unknown"]
    assert "another password" in checks[1].observed
    assert str(login({**hashed("correct horse"), "user": "alice"}).verdict) == "fail"
    assert not any(word in str(check.as_dict()) for check in checks for word in ("correct horse", "wrong"))


def test_without_a_password_at_hand_only_the_user_is_compared() -> None:
    assert login(hashed("whatever"), password="").ok


def test_a_registry_that_asks_for_no_login_has_none_to_judge() -> None:
    assert str(images_of({"status": 200})["login"].verdict) == "skip"
    assert str(images_of({"status": 200}, registry=SITE)["login"].verdict) == "skip"


def test_a_registry_on_a_controller_that_is_away_is_not_accused() -> None:
    check = images_of({"status": 0}, away=True)["registry_answers"]

    assert (check.verdict, "head" in check.observed) == ("unknown", True)


def test_a_mirror_that_does_not_answer_is_a_warning_that_names_it_because_the_controller_answers_instead() -> None:
    near = {"status": 200, "mirror": {"status": 200}}
    down = {"status": 200, "mirror": {"error": "it does not answer: Connection refused"}}

    assert str(images_of(near, mirror="node1")["mirror"].verdict) == "pass"
    check = images_of(down, mirror="node1")["mirror"]
    assert (str(check.verdict), check.observed) == ("warn", "node1: it does not answer: Connection refused")
    assert "systemctl status clusterctl-mirror on node1" in check.fix
    assert str(images_of({"status": 200, "mirror": {"status": 502}}, mirror="node1")["mirror"].verdict) == "warn"
    assert str(images_of({"status": 200}, mirror="node1")["mirror"].verdict) == "unknown"
    assert str(images_of({"status": 200})["mirror"].verdict) == "skip"


def test_trust_under_a_name_that_the_registry_has_no_more_is_named() -> None:
    check = images_of({"status": 200, "former": ["head:6003"]})["trust"]

    assert (str(check.verdict), check.observed) == ("fail", "/etc/docker/certs.d/head:6003")
    assert str(images_of({"status": 200, "former": []})["trust"].verdict) == "pass"
    assert str(images_of({"status": 200})["trust"].verdict) == "unknown"
    assert str(images_of({"status": 200}, registry=SITE)["trust"].verdict) == "skip"
    for hostile in ("head:6003/../..", "../etc:1", "head"):
        with pytest.raises(ValueError, match="former"):
            images_of({"status": 200, "former": [hostile]})


@pytest.mark.parametrize(
    ("told", "verdict"), [({"problem": ""}, "pass"), ({"problem": "expired"}, "fail"), ({"problem": None}, "unknown")]
)
def test_the_certificate_of_a_mirror_is_judged_on_the_mirror(told: dict[str, Any], verdict: str) -> None:
    said = {"status": 200, "mirror": {"status": 200}, "mirror_certificate": {"authority": "", **told}}

    assert str(images_of(said, mirror="node1", mirrors=True)["mirror_certificate"].verdict) == verdict
    assert str(images_of(said, mirror="node1")["mirror_certificate"].verdict) == "skip"
