"""How a machine stands to the registry: its certificates, its answer over TLS, the engine's login."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from machines import plugin

from provision import content

registry = plugin("plugins/module_utils/image_registry.py", "ansible.module_utils.image_registry")
plugin("plugins/module_utils/machine_engine.py", "ansible.module_utils.machine_engine")
machine = plugin("plugins/module_utils/machine_registry.py")


def make(root: Path, host: str = "localhost", days: int = 365) -> tuple[Path, Path]:
    """Make certificates as the role does; return where the server's and the writer's are."""
    directory, client = root / "registry", root / "client"
    for place in (directory, client):
        place.mkdir(parents=True, exist_ok=True)
    script = (content.ROOT / "roles/container_images/files/make-certificates").read_text(encoding="utf-8")
    # The group comes with the registry's package.
    words = ["sh", "-c", script.replace("-g docker-registry", ""), "make", str(directory), host, str(days), str(client)]
    subprocess.run(words, check=True, timeout=60)
    return directory, client


def judged(directory: Path, client: Path, host: str = "localhost", days: int = 30) -> tuple[str, Any]:
    found = machine.certificates(directory, client, host, days)
    return found["authority"], found["problem"]


def test_certificates_that_the_role_makes_are_good_and_their_authority_is_told(tmp_path: Path) -> None:
    directory, client = make(tmp_path)

    assert judged(directory, client) == ((directory / "ca.crt").read_text(), "")


def test_certificates_that_are_missing_are_named(tmp_path: Path) -> None:
    directory, client = make(tmp_path)
    (directory / "server.key").unlink()
    (client / "client.cert").unlink()

    authority, problem = judged(directory, client)

    assert (authority, "server.key" in problem, "client.cert" in problem) == ("", True, True)


def test_certificates_that_are_about_to_expire_or_are_for_another_host_are_not_good(tmp_path: Path) -> None:
    directory, client = make(tmp_path, days=20)

    assert "not good" in judged(directory, client)[1]
    assert judged(directory, client, days=10)[1] == ""
    assert "not good" in judged(directory, client, host="other", days=10)[1]


def test_a_key_of_another_certificate_cannot_be_used(tmp_path: Path) -> None:
    directory, client = make(tmp_path)
    key = (directory / "server.key").read_text()
    directory, client = make(tmp_path)
    (directory / "server.key").write_text(key)

    assert "cannot be used" in judged(directory, client)[1]


def test_half_of_a_new_set_is_no_set(tmp_path: Path) -> None:
    directory, client = make(tmp_path)
    server = (directory / "server.crt", directory / "server.key")
    before = [path.read_text() for path in server]
    make(tmp_path)
    # The run ended before these were written.
    for path, text in zip(server, before, strict=True):
        path.write_text(text)
    assert "not good" in judged(directory, client)[1]

    make(tmp_path)
    (client / "ca.crt").write_text("older")
    assert "not that of the server" in judged(directory, client)[1]


def certified(authority: Path, mirror: Path, host: str = "node1", days: int = 365) -> None:
    """Make a mirror's certificate as the role does: its request, signed by the registry's authority."""
    mirror.mkdir(exist_ok=True)
    scripts = content.ROOT / "roles/container_images/files"
    ask = (scripts / "request-mirror").read_text().replace("chgrp www-data", "true")
    words = ["sh", "-c", ask, "request", str(mirror), str(authority / "ca.crt"), host, "30"]
    request = subprocess.run(words, check=True, timeout=60, capture_output=True, text=True).stdout
    if request:
        words = ["sh", str(scripts / "sign-mirror"), str(authority), host, str(days), request.strip()]
        signed = subprocess.run(words, check=True, timeout=60, capture_output=True, text=True).stdout
        (mirror / "server.crt").write_text(signed)


def mirrored(mirror: Path, authority: Path, host: str = "node1", days: int = 30) -> Any:
    return machine.mirror_certificate(mirror, authority / "ca.crt", host, days)["problem"]


def test_a_mirror_has_a_certificate_for_its_own_name_that_the_registrys_authority_has_signed(tmp_path: Path) -> None:
    authority, mirror = make(tmp_path)[0], tmp_path / "mirror"
    mirror.mkdir()
    assert "there is no" in mirrored(mirror, authority)

    certified(authority, mirror)

    assert mirrored(mirror, authority) == ""
    assert "not good for node2" in mirrored(mirror, authority, "node2")
    text = subprocess.run(
        ["openssl", "x509", "-in", str(mirror / "server.crt"), "-noout", "-ext", "extendedKeyUsage,subjectAltName"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    # Nobody writes with it.
    assert ("DNS:node1" in text, "Server" in text, "Client" in text) == (True, True, False)


def test_a_mirror_asks_for_another_certificate_only_where_its_own_is_not_good_and_keeps_its_key(tmp_path: Path) -> None:
    authority, mirror = make(tmp_path)[0], tmp_path / "mirror"
    certified(authority, mirror)
    key, certificate = (mirror / "server.key").read_text(), (mirror / "server.crt").read_text()
    certified(authority, mirror)
    assert (mirror / "server.crt").read_text() == certificate

    make(tmp_path)
    assert "not good" in mirrored(mirror, authority)
    certified(authority, mirror)

    assert mirrored(mirror, authority) == ""
    assert (mirror / "server.key").read_text() == key
    (mirror / "server.crt").write_text(certificate)
    assert "not good" in mirrored(mirror, authority)


def test_a_mirrors_certificate_that_ends_soon_or_has_another_key_is_not_good(tmp_path: Path) -> None:
    authority, mirror = make(tmp_path)[0], tmp_path / "mirror"
    certified(authority, mirror, days=20)
    assert "not good" in mirrored(mirror, authority)
    certified(authority, mirror)
    assert mirrored(mirror, authority) == ""

    (mirror / "server.key").write_text((authority / "server.key").read_text())
    assert "cannot be used" in mirrored(mirror, authority)


def test_an_authority_whose_key_is_gone_is_made_anew(tmp_path: Path) -> None:
    directory, client = make(tmp_path)
    (directory / "ca.key").unlink()

    assert judged(directory, client) == ("", f"there is no {directory}/ca.key")


def test_an_openssl_that_hangs_is_no_verdict(tmp_path: Path) -> None:
    directory, client = make(tmp_path)

    found = machine.certificates(
        directory, client, "localhost", 30, run=lambda *_: ("", "did not answer in 10 s", True)
    )

    assert found["problem"] is None


def test_an_openssl_that_is_missing_makes_no_certificate_a_bad_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, client = make(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))

    found = machine.certificates(directory, client, "localhost", 30)

    assert found["authority"] == (directory / "ca.crt").read_text()
    assert (found["problem"], found["unjudged"]) == ("", "openssl is not installed")


class Answers(BaseHTTPRequestHandler):
    """A registry's base."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/v2/" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    directory, _ = make(tmp_path)
    server = HTTPServer(("127.0.0.1", 0), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.crt", directory / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"localhost:{server.server_port}", directory / "ca.crt"
    server.shutdown()
    server.server_close()


def strict(**words: Any) -> ssl.SSLContext:
    """Make a context as Python 3.13 does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    if words.get("cafile"):
        context.load_verify_locations(words["cafile"])
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def test_a_registry_answers_those_who_trust_it_and_nobody_else(
    served: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssl, "create_default_context", strict)
    host, authority = served
    assert "CERTIFICATE_VERIFY_FAILED" in machine.reached(host, 10, tmp_path)["error"]

    trusted = tmp_path / "etc/docker/certs.d" / host
    trusted.mkdir(parents=True)
    (trusted / "ca.crt").write_text(authority.read_text())
    assert machine.reached(host, 10, tmp_path) == {"status": 200}

    (trusted / "ca.crt").write_text("no certificate")
    assert "does not answer" in machine.reached(host, 10, tmp_path)["error"]


def test_a_registry_that_nobody_runs_and_one_that_hangs_are_no_answer() -> None:
    assert machine.reached("127.0.0.1:1", 5)["error"] == "it does not answer: Connection refused"
    with pytest.raises(registry.RegistryError, match=r"did not answer in 0\.1 s"):
        registry.within(0.1, lambda: time.sleep(3600))


def test_a_login_is_told_by_its_user_and_a_hash(tmp_path: Path) -> None:
    known = base64.b64encode(b"robot:correct horse").decode()
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"auths": {"harbor": {"auth": known}}}))

    found = machine.login("harbor", "00ff", path)

    assert found == {"salt": "00ff", "user": "robot", "fingerprint": machine.fingerprint(known, "00ff")}
    assert machine.login("harbor", "", path)["salt"] != machine.login("harbor", "", path)["salt"]
    assert "horse" not in str(found)
    assert known not in str(found)


@pytest.mark.parametrize(
    "text", [None, "", "{}", "[]", '{"auths": {"harbor": {}}}', '{"auths": {"harbor": {"auth": 7}}}']
)
def test_without_a_login_that_is_said(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)

    assert machine.login("harbor", "00ff", path)["absent"]


def test_earlier_names_of_the_registry_are_told_and_what_others_trust_is_not(tmp_path: Path) -> None:
    ours, others = (make(tmp_path / name, name)[0] for name in ("head", "registry"))
    trusts = {"head:5000": ours, "head:6003": ours, "head:443": others, "alias:5000": ours, "head:x y": ours}
    for name, authority in trusts.items():
        (tmp_path / "etc/docker/certs.d" / name).mkdir(parents=True)
        (tmp_path / "etc/docker/certs.d" / name / "ca.crt").write_text((authority / "ca.crt").read_text())
    (tmp_path / "etc/docker/certs.d/head:7").mkdir()
    ask = {"directory": "/etc/docker/certs.d", "host": "head", "keep": ["head:5000", "head:5001"]}

    found = machine.collect(tmp_path, {"host": "localhost:1", "seconds": 1, "trust": ask})

    assert found["former"] == ["head:6003"]
    assert machine.former(tmp_path / "none", "head", []) == []
