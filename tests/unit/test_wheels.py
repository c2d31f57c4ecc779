"""What a build of Python packages has on a machine: its proxies, authorities, configuration of pip, and wheels."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from machines import plugin

from provision.nvidia.releases import torch_for

site_network = plugin("plugins/module_utils/site_network.py", "ansible.module_utils.site_network")
debian_mirror = plugin("plugins/module_utils/debian_mirror.py", "ansible.module_utils.debian_mirror")
wheels = plugin("plugins/module_utils/wheels.py", "ansible.module_utils.wheels")

HERE = socket.gethostname()

#: Names as on PyPI in November 2026; the second is for another Python.
TORCH = "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl"
OTHER = "torch-2.13.0-cp313-cp313-manylinux_2_28_x86_64.whl"


@pytest.fixture(autouse=True)
def processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for name in site_network.PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def no_apt(*_: Any) -> None:
    """Say nothing, as where there is no such program."""


def apt(text: str) -> Any:
    return lambda *_: text


def test_a_proxy_is_the_inventorys_else_the_environments_else_apts(tmp_path: Path) -> None:
    given, of_apt = {"HTTPS_PROXY": "http://given:1"}, apt('Acquire::http::Proxy "http://apt:3";\n')
    (tmp_path / "etc").mkdir()

    def found(environ: dict[str, str], apt: Any) -> dict[str, str]:
        told: dict[str, str] = site_network.proxies(environ, tmp_path, apt)
        return told

    assert found({}, no_apt) == {}
    assert found({}, of_apt) == {"http_proxy": "http://apt:3", "no_proxy": f"localhost,{HERE}"}
    (tmp_path / "etc/environment").write_text('http_proxy="http://file:2"\nexport NO_PROXY=.site\nPATH="/bin"\n')
    assert found({}, of_apt) == {"http_proxy": "http://file:2", "no_proxy": f".site,{HERE}"}
    assert found(given, of_apt)["https_proxy"] == "http://given:1"
    (tmp_path / "etc/clusterctl").mkdir()
    (tmp_path / "etc/clusterctl/proxy").write_text("http_proxy=http://declared:4\n")
    assert found(given, of_apt)["http_proxy"] == "http://declared:4"


def test_pips_own_authority_counts_before_the_machines(tmp_path: Path) -> None:
    for path in ("etc/ssl/certs/ca-certificates.crt", "etc/site.pem"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()

    assert site_network.certificate(tmp_path) == "/etc/ssl/certs/ca-certificates.crt"
    (tmp_path / "etc/pip.conf").write_text("[global]\ncert = /etc/site.pem\n")
    assert site_network.pip_files(tmp_path) == ["/etc/pip.conf"]
    assert site_network.certificate(tmp_path) == "/etc/site.pem"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([TORCH], ""), (["torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"], ""),
        ([], "no wheel of torch"), ([OTHER], "no wheel of torch for cp311"),
        (["torch-2.13.0-cp311-cp311-manylinux_2_28_aarch64.whl"], "no wheel of torch"),
    ],
)  # fmt: skip
def test_a_directory_without_a_torch_for_the_images_python_is_named(
    names: list[str], said: str, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).touch()

    found = wheels.lacking({"suite": "bookworm", "directories": {"wheels": str(tmp_path)}}, 1)

    assert said in found
    assert bool(said) == bool(found)


def test_a_directory_that_is_not_there_is_named() -> None:
    asked = {"suite": "bookworm", "directories": {"wheels": "/srv/none"}}

    assert wheels.lacking(asked, 1) == "/srv/none: No such file or directory"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A machine's root whose pip has an index of its own, and the page of torch in it."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(tmp_path / "index"))

        def log_message(self, *_: Any) -> None:
            pass

    page, root = tmp_path / "index/simple/torch/index.html", tmp_path / "root"
    page.parent.mkdir(parents=True)
    (root / "etc").mkdir(parents=True)
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://reader:secret@127.0.0.1:{server.server_port}/simple"
        (root / "etc/pip.conf").write_text(f"[global]\nindex-url = {address}\n")
        yield root, page
        server.shutdown()


def test_an_index_that_pip_is_given_is_asked_and_its_password_is_not_told(index: tuple[Path, Path]) -> None:
    root, page = index
    recipe = {"suite": "bookworm", "packages": ["torch<2.11", "numpy"]}

    missing = wheels.lacking(recipe, 60, str(root))
    page.write_text(f'<a href="x/{OTHER}#sha256=0">{OTHER}</a>')
    another = wheels.lacking(recipe, 60, str(root))
    # As nginx lists a directory: of a long name it shows the beginning.
    page.write_text(f'<a href="{OTHER}">{OTHER}</a>\n<a href="{quote(TORCH)}">{TORCH[:47]}..&gt;</a>')

    assert "secret" not in missing + another
    assert missing.endswith("/simple: no wheel of torch for cp311 and x86_64")
    assert another.endswith("/simple: no wheel of torch for cp311 and x86_64")
    assert wheels.lacking(recipe, 60, str(root)) == ""


def test_pytorch_fits_the_oldest_driver_that_is_declared() -> None:
    assert torch_for(()) == torch_for({580, 595}) == "torch"
    assert torch_for({535, 580}) == "torch<2.11"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("deb http://archive/ubuntu noble main\n", 0),
        (
            "deb [arch=amd64] http://m/debian bookworm main\ndeb http://m/debian-security bookworm-security main",
            3,
        ),
        ("Types: deb\nURIs: http://mirror/debian\nSuites: bookworm bookworm-updates\nComponents: main\n", 2),
    ],
)
def test_a_mirror_of_debian_is_the_one_that_apt_uses_in_either_of_its_formats(
    text: str, lines: int, tmp_path: Path
) -> None:
    (tmp_path / "etc/apt").mkdir(parents=True)
    (tmp_path / "etc/apt/sources.list").write_text(text)

    found = debian_mirror.sources("trixie", root=tmp_path)

    assert len(found) == lines
    assert all(" trixie" in line for line in found)
    assert debian_mirror.base({"suite": "trixie"}, tmp_path) == ("" if lines else "debian:trixie-slim")
    assert debian_mirror.sources("trixie", "http://own", tmp_path)[0] == "deb http://own trixie main"
