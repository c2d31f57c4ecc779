"""What a machine says of the proxy that the inventory declares."""

from __future__ import annotations

import http.server
import socket
import threading
from pathlib import Path

from machines import plugin

plugin("plugins/module_utils/debian_mirror.py", "ansible.module_utils.debian_mirror")
machine_proxy = plugin("plugins/module_utils/machine_proxy.py", "ansible.module_utils.machine_proxy")


class Proxy(http.server.BaseHTTPRequestHandler):
    """One that wants to know who asks for what is outside."""

    def do_HEAD(self) -> None:
        outside = self.path == "http://mirror.site.example/"
        self.send_response(407 if outside else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_proxy_is_asked_what_apt_would_ask_it(tmp_path: Path) -> None:
    (tmp_path / "etc/apt").mkdir(parents=True)
    (tmp_path / "etc/apt/sources.list").write_text(
        "# deb http://old/\ndeb http://mirror.site.example/debian trixie main\n"
    )
    with http.server.HTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told = machine_proxy.collect({"host": "127.0.0.1", "port": server.server_port, "tls": False}, str(tmp_path))
        server.shutdown()

    assert told == {"status": 407, "problem": ""}


def test_a_proxy_that_is_not_there_is_a_problem_with_a_reason(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        told = machine_proxy.collect({"host": "127.0.0.1", "port": taken.getsockname()[1], "tls": False}, str(tmp_path))

    assert told == {"status": 0, "problem": "Connection refused"}
