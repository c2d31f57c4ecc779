"""How a site's registry is asked for an image: with the engine's own login, as registries and Harbor want to see it."""

from __future__ import annotations

import base64
import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from machines import plugin

image = plugin("plugins/module_utils/image_registry.py")
KNOWN = base64.b64encode(b"robot:correct horse").decode()


class Harbor(BaseHTTPRequestHandler):
    """Hands a token to those who log in, and shows one image to those who bring it."""

    def do_GET(self) -> None:
        right = (
            self.headers["Authorization"] == f"Basic {KNOWN}"
            and "scope=repository%3Acluster%2Fslurm%3Apull" in self.path
        )
        self.answer(200 if right else 401, json.dumps({"token": "abc"}).encode())

    def do_HEAD(self) -> None:
        if self.headers["Authorization"] != "Bearer abc":
            return self.answer(401)
        return self.answer(200 if self.path == "/v2/cluster/slurm/manifests/sha256:1" else 404)

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        if status == 401:
            realm = f"https://127.0.0.1:{self.server.server_port}/token"  # type: ignore[attr-defined]
            self.send_header("WWW-Authenticate", f'Bearer realm="{realm}",service="harbor-registry"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(autouse=True)
def without_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in speaks HTTP: what would be asked over HTTPS is asked without."""
    plain = image._opened

    def opened(request: urllib.request.Request, *options: Any) -> Any:
        request.full_url = request.full_url.replace("https://", "http://")
        return plain(request, *options)

    monkeypatch.setattr(image, "_opened", opened)


@pytest.fixture(scope="module")
def harbor() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Harbor)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()


def login(path: Path, host: str, known: str = KNOWN) -> Path:
    path.write_text(json.dumps({"auths": {host: {"auth": known}}}), encoding="utf-8")
    return path


@pytest.mark.parametrize(("digest", "status"), [("sha256:1", 200), ("sha256:2", 404)])
def test_a_token_is_fetched_with_the_engines_login(harbor: str, tmp_path: Path, digest: str, status: int) -> None:
    url = f"http://{harbor}/v2/cluster/slurm/manifests/{digest}"

    refused, challenge = image.ask(url, None)
    header = image.authorization(harbor, "cluster/slurm", challenge, None, login(tmp_path / "login", harbor))

    assert refused == 401
    assert image.ask(url, None, header)[0] == status


def test_a_wrong_password_opens_nothing(harbor: str, tmp_path: Path) -> None:
    url = f"http://{harbor}/v2/cluster/slurm/manifests/sha256:1"
    path = login(tmp_path / "login", harbor, base64.b64encode(b"robot:battery").decode())

    header = image.authorization(harbor, "cluster/slurm", image.ask(url, None)[1], None, path)

    assert header is None
    assert image.ask(url, None, header)[0] == 401


def test_a_registry_with_passwords_of_its_own_is_asked_with_the_same_login(tmp_path: Path) -> None:
    path = login(tmp_path / "login", "registry:5000")

    assert image.authorization("registry:5000", "cluster", 'Basic realm="site"', None, path) == f"Basic {KNOWN}"
    assert image.authorization("other:5000", "cluster", 'Basic realm="site"', None, path) is None
    assert image.authorization("registry:5000", "cluster", "Basic", None, tmp_path / "absent") is None


@pytest.mark.parametrize("realm", ["http://registry:5000/token", "file:///etc/shadow", "ftp://a/b", ""])
def test_the_password_is_never_sent_unencrypted_wherever_the_registry_points(realm: str, tmp_path: Path) -> None:
    path = login(tmp_path / "login", "registry:5000")

    with pytest.raises(image.RegistryError, match="unencrypted"):
        image.authorization("registry:5000", "cluster", f'Bearer realm="{realm}",service="x"', None, path)
