"""Who may push what to the registry of users' images: credentials, tokens, room, and what is needed no more."""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import runpy
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.x509 import load_der_x509_certificate
from waiting import PATIENCE

from provision import content

PROGRAM = runpy.run_path(str(content.ROOT / "roles/container_images/files/registry-tokens/registry-tokens"))
TOKENS: dict[str, Any] = {
    **vars(sys.modules["registry_rights"]),
    **vars(sys.modules["registry_store"]),
    **PROGRAM,
}
HELPER = content.ROOT / "roles/slurm_image/files/image/docker-credential-clusterctl"
Refused: type[Exception] = TOKENS["RefusedError"]
PURPOSE = "push to head:5003"
DAY = 86_400
NOW = 1_800_000_000.0


def access(scope: str, user: str = "ada", room: Any = lambda _: None, who: Any = None) -> dict[str, list[str]]:
    """Return what a question gets, by repository."""
    found = TOKENS["granted"](TOKENS["wanted"]([scope]), who or (lambda: user), room, "head:5003")
    return {one["name"]: one["actions"] for one in found}


def nobody() -> str:
    raise AssertionError("nobody has to say who it is")


def test_a_user_pushes_below_the_own_name_and_everybody_pulls() -> None:
    assert access("repository:ada/train:pull,push") == {"ada/train": ["pull", "push"]}
    assert access("repository:ada/team/train:push,pull repository:grace/base:pull") == {
        "ada/team/train": ["pull", "push"],
        "grace/base": ["pull"],
    }
    assert access("repository:grace/train:pull", who=nobody) == {"grace/train": ["pull"]}
    assert access("registry:catalog:*", who=nobody) == {"catalog": ["*"]}


@pytest.mark.parametrize(
    "name",
    [
        *("grace/train", "ada", "adam/train", "slurm", "ad/a/train", "../ada/train", "grace/ada/x"),
        *("ada/../grace/x", "ada//x", "ada/X", "ada/\x1b[31mx", "ada/"),
    ],
)
def test_nobody_pushes_elsewhere_and_is_told_where_to(name: str) -> None:
    with pytest.raises(Refused, match="ada pushes to head:5003/ada/ only: docker tag IMAGE head:5003/ada/"):
        access(f"repository:{name}:pull,push")


@pytest.mark.parametrize("actions", ["delete", "*", "pull,delete"])
def test_a_user_removes_below_the_own_name_also_where_there_is_no_room(actions: str) -> None:
    def full(_: str) -> None:
        raise AssertionError("removing takes no room")

    assert access(f"repository:ada/train:{actions}", room=full) == {"ada/train": ["delete", "pull"]}
    for name in ("grace/train", "ada", "adam/train", "grace/ada/x", "ada/../grace/x"):
        with pytest.raises(Refused, match="ada removes what is in head:5003/ada/ only"):
            access(f"repository:{name}:{actions}", room=full)


def test_no_other_right_is_given() -> None:
    assert access("repository:ada/train:pull,push") == {"ada/train": ["pull", "push"]}
    assert access("registry:other:*", who=nobody) == {}
    for strange in (
        "repository:ada/train",
        "plugin:ada/x:pull",
        "repository::push",
        " ".join(["repository:a/b:pull"] * 65),
    ):
        with pytest.raises(Refused, match="not asked as"):
            access(strange)


def people(*answers: Any) -> tuple[Any, list[str]]:
    """Return who knows people by these answers of munge's, one for each question; and what munge was asked."""
    asked: list[str] = []
    left = list(answers)

    def decode(credential: str) -> Any:
        asked.append(credential)
        return left.pop(0)

    names = {2001: "ada", 2003: "grace", 2004: "Ada.", 999: "slurm"}
    return TOKENS["People"](PURPOSE, decode, lambda uid: names[uid]), asked


def test_munge_is_asked_once_for_a_push_that_shows_its_credential_several_times() -> None:
    known, asked = people((2001, int(NOW), PURPOSE), (2003, int(NOW), PURPOSE))

    assert [known.who("MUNGE:a:", NOW + more) for more in (0, 1, 3599)] == ["ada"] * 3
    assert known.who("MUNGE:b:", NOW) == "grace"
    assert asked == ["MUNGE:a:", "MUNGE:b:"]
    with pytest.raises(Refused, match="lasted an hour: push again"):
        known.who("MUNGE:a:", NOW + 3600)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((2001, int(NOW), "slurm's own"), "made for something else"),
        ((2001, int(NOW), "push to other:5003"), "made for something else"),
        ((0, int(NOW), PURPOSE), "number 0 is no ordinary one"),
        ((999, int(NOW), PURPOSE), "number 999 is no ordinary one"),
        ((2002, int(NOW), PURPOSE), "has the number 2002"),
        ((2004, int(NOW), PURPOSE), "Ada. cannot be part of an image's name"),
    ],
)
def test_who_may_not_push_is_told_why(answer: Any, why: str) -> None:
    known, _ = people(answer, answer)

    for _ in range(2):
        with pytest.raises(Refused, match=why):
            known.who("MUNGE:a:", NOW)


def test_a_munge_that_is_slow_keeps_nobody_else_waiting() -> None:
    slow, known = threading.Event(), {"MUNGE:good:": ("ada", NOW + 9)}

    def decode(credential: str) -> Any:
        assert slow.wait(PATIENCE)
        return 2003, int(NOW), PURPOSE

    people = TOKENS["People"](PURPOSE, decode, lambda _: "grace")
    people._known = {hashlib.sha256(one.encode()).digest(): found for one, found in known.items()}
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(people.who("MUNGE:b:", NOW))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert people.who("MUNGE:good:", NOW) == "ada"
    slow.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert answers == ["grace", "grace"]


def test_credentials_are_forgotten_before_they_fill_the_memory() -> None:
    known, asked = people(*((2001, int(NOW) + n, PURPOSE) for n in range(TOKENS["REMEMBERED"] + 5)))

    for number in range(TOKENS["REMEMBERED"] + 4):
        known.who(f"MUNGE:{number}:", NOW)
    known.who(f"MUNGE:{TOKENS['REMEMBERED'] + 3}:", NOW)
    assert len(known._known) <= TOKENS["REMEMBERED"]
    assert len(asked) == TOKENS["REMEMBERED"] + 4


@pytest.mark.parametrize(
    ("code", "out", "err", "found"),
    [
        (
            0,
            "STATUS:          0\nENCODE_TIME:     1795446417\nUID:             2001\n\npush to head:5003",
            "",
            (2001, 1795446417),
        ),
        # The payload says nothing about its maker.
        (0, "STATUS:          0\nENCODE_TIME:     7\nUID:             2001\n\nUID:   2003\n\nx", "", (2001, 7)),
        (
            17,
            "STATUS:          17\nENCODE_TIME:     1\nUID:             2001\n\nx",
            "unmunge: Error: Replayed credential",
            None,
        ),
        (15, "STATUS:          15\nUID:             2001\n", "unmunge: Error: Expired credential", None),
        (9, "", "unmunge: Error: Invalid credential", None),
        (0, "STATUS:          17\nENCODE_TIME:     1\nUID:             2001\n\nx", "", None),
    ],
)
def test_what_munge_says_is_believed_only_where_it_accepts(code: int, out: str, err: str, found: Any) -> None:
    def run(*_: Any, **__: Any) -> Any:
        return subprocess.CompletedProcess([], code, out.encode(), err.encode())

    if found:
        assert TOKENS["decoded"]("MUNGE:x:", run)[:2] == found
    else:
        with pytest.raises(Refused, match="munge does not accept who you are"):
            TOKENS["decoded"]("MUNGE:x:", run)


def test_a_munge_that_does_not_answer_lets_nobody_in() -> None:
    def run(*_: Any, **__: Any) -> Any:
        raise subprocess.TimeoutExpired("unmunge", 10)

    with pytest.raises(Refused, match=r"munge does not answer on .*tell the administrators"):
        TOKENS["decoded"]("MUNGE:x:", run)


@pytest.mark.parametrize("header", ["", "Basic", "Basic !!", "Bearer bXVuZ2U6eA==", "Basic bXVuZ2U=", "Basic /////w=="])
def test_what_is_no_password_is_none(header: str) -> None:
    assert TOKENS["password"](header) == ""
    assert TOKENS["password"]("Basic " + base64.b64encode(b"munge:MUNGE:x:").decode()) == "MUNGE:x:"


class Pushed:
    """A store as docker-registry lays it out."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.root = directory, directory / "docker/registry/v2"
        self.meanwhile: Callable[[], object] = lambda: None
        self.store = TOKENS["Store"](str(directory), pause=lambda _: self.meanwhile())
        self.root.mkdir(parents=True)

    def blob(self, data: bytes, age: float = 2 * DAY) -> str:
        number = hashlib.sha256(data).hexdigest()
        self.written(self.root / f"blobs/sha256/{number[:2]}/{number}/data", data, age)
        return number

    def written(self, path: Path, data: bytes, age: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (NOW - age, NOW - age))

    def linked(self, repository: str, place: str, number: str, age: float = 2 * DAY) -> None:
        self.written(self.root / f"repositories/{repository}/{place}/link", f"sha256:{number}".encode(), age)

    def image(self, repository: str, tag: str, *layers: bytes, age: float = 2 * DAY, **more: Any) -> str:
        """Push an image; without a tag, it is what a tag named before."""
        numbers = [self.blob(layer, age) for layer in layers]
        for number in numbers:
            self.linked(repository, f"_layers/sha256/{number}", number, age)
        parts = [{"digest": f"sha256:{number}"} for number in numbers]
        told = {"config": parts[0], "layers": parts[1:]} if parts else {}
        manifest = self.blob(json.dumps(told | more).encode(), age)
        self.linked(repository, f"_manifests/revisions/sha256/{manifest}", manifest, age)
        if tag:
            self.linked(repository, f"_manifests/tags/{tag}/current", manifest, age)
            self.linked(repository, f"_manifests/tags/{tag}/index/sha256/{manifest}", manifest, age)
        return manifest

    def there(self) -> set[str]:
        return {path.parent.name for path in self.root.glob("blobs/sha256/*/*/data")}


def number(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_what_a_user_holds_is_counted_once_with_what_is_on_its_way(tmp_path: Path) -> None:
    pushed = Pushed(tmp_path)
    both = b"base" * 1000
    names = [pushed.image("ada/one", "1", b"c1", both), pushed.image("ada/team/two", "1", b"c2", both, b"more")]
    pushed.image("grace/one", "1", b"c3", both)
    pushed.image("adam/one", "1", b"c4", b"his" * 5000)
    pushed.written(pushed.root / "repositories/ada/new/_uploads/1/data", b"x" * 77, 0)

    manifests = sum(pushed.store.blob(name).stat().st_size for name in names)
    assert pushed.store.held("ada") == 4000 + 2 + 2 + 4 + 77 + manifests
    assert pushed.store.held("nobody") == 0


def test_without_room_a_push_is_refused_with_the_numbers(tmp_path: Path) -> None:
    pushed = Pushed(tmp_path)
    pushed.image("ada/one", "1", b"c1", b"x" * 1000)

    pushed.store.require_room("grace", 1000, 0, "head:5003")
    with pytest.raises(Refused, match=r"head:5003/ada/ has 0.0 GB, of 0 that a user may have: what no tag names"):
        pushed.store.require_room("ada", 1000, 0, "head:5003")
    with pytest.raises(
        Refused, match=r"takes no images now, its disk has \d+ GB left, of which 9+ stay free: tell the"
    ):
        pushed.store.require_room("grace", 1000, 10**18 - 10**9, "head:5003")


def test_what_no_tag_has_named_for_a_day_goes_and_nothing_else(tmp_path: Path) -> None:
    pushed = Pushed(tmp_path)
    kept = pushed.image("ada/one", "1", b"config", b"base", b"new")
    older = pushed.image("ada/one", "", b"old config", b"base", b"old")
    fresh = pushed.image("ada/one", "", b"fresh config", b"fresh", age=DAY / 2)
    # A list of several architectures names manifests that have no tag.
    child = pushed.image("ada/many", "", b"arm config", b"arm")
    several = pushed.image("ada/many", "1", manifests=[{"digest": f"sha256:{child}"}])
    # A push that broke off, long ago and just now.
    pushed.blob(b"alone")
    pushed.blob(b"alone, and young", age=60)
    pushed.linked("ada/new", f"_layers/sha256/{pushed.blob(b'on its way', 60)}", number(b"on its way"), 60)
    before = pushed.there()

    assert pushed.store.collect(NOW) == 4

    assert before - pushed.there() == {older, number(b"old config"), number(b"old"), number(b"alone")}
    assert {kept, fresh, child, several, number(b"base"), number(b"arm")} <= pushed.there()
    assert pushed.store.collect(NOW) == 0
    # Taken away by the administrators.
    subprocess.run(["rm", "-r", str(pushed.root / "repositories/ada/one")], check=True)
    pushed.store.collect(NOW)
    assert not {kept, number(b"base"), number(b"new")} & pushed.there()
    assert {child, number(b"arm")} <= pushed.there()


@pytest.mark.parametrize(
    "spoilt",
    [
        *(b"no json", b"[]", b'{"layers": [{"digest": "../../x"}]}', b'{"layers": [{}]}', b"x" * 5_000_000),
        pytest.param(b'{"layers": [], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="deeper than Python goes"),
    ],
)
def test_what_cannot_be_read_loses_nothing(spoilt: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pushed = Pushed(tmp_path)
    pushed.image("ada/one", "", b"old config", b"old")
    name = pushed.blob(spoilt)
    pushed.linked("ada/one", f"_manifests/revisions/sha256/{name}", name)
    pushed.linked("ada/one", "_manifests/tags/1/current", name)
    pushed.image("grace/one", "", b"her old config", b"her old")

    assert pushed.store.collect(NOW) == 3  # hers
    assert number(b"old") in pushed.there()
    assert "ada/one: left as it is" in capsys.readouterr().err


def test_what_a_tag_named_until_today_stays_a_day_longer(tmp_path: Path) -> None:
    pushed = Pushed(tmp_path)
    old = pushed.image("ada/one", "1", b"old config", b"old")
    pushed.image("ada/one", "1", b"config", b"new", age=60)

    assert pushed.store.collect(NOW) == 0
    assert old in pushed.there()
    assert pushed.store.collect(NOW + DAY) == 3
    assert old not in pushed.there()


def test_what_is_named_again_while_it_is_collected_is_whole(tmp_path: Path) -> None:
    pushed = Pushed(tmp_path)
    again = pushed.image("ada/one", "", b"config", b"layer")
    gone = pushed.image("ada/one", "", b"another config", b"another layer")
    pushed.meanwhile = lambda: pushed.linked("ada/one", "_manifests/tags/1/current", again, 0)

    assert pushed.store.collect(NOW) == 3
    assert {again, number(b"config"), number(b"layer")} <= pushed.there()
    assert gone not in pushed.there()
    repository = pushed.root / "repositories/ada/one"
    assert (repository / f"_layers/sha256/{number(b'layer')}/link").exists()
    assert not list(pushed.root.rglob("*.aside"))


def test_what_a_user_removes_while_it_is_collected_is_gone_and_nothing_else(tmp_path: Path) -> None:
    pushed = Pushed(tmp_path)
    kept = pushed.image("grace/one", "1", b"her config", b"her layer")
    pushed.image("ada/one", "1", b"config", b"layer")
    pushed.image("ada/one", "1", b"new config", b"new layer")
    tag = pushed.root / "repositories/ada/one/_manifests/tags/1"
    # The registry removes a tag with all that it has named, as of which the collection has set something aside.
    pushed.meanwhile = lambda: subprocess.run(["rm", "-rf", str(tag)], check=True)

    pushed.store.collect(NOW)
    pushed.store.collect(NOW + DAY)
    assert pushed.there() == {kept, number(b"her config"), number(b"her layer")}
    assert not list(pushed.root.rglob("*.aside"))
    assert TOKENS["set_aside"](tag) is None
    TOKENS["back"](tag.with_name("gone.aside"))


def test_a_collection_that_was_ended_has_lost_nothing(tmp_path: Path) -> None:
    pushed = Pushed(tmp_path)
    name = pushed.image("ada/one", "", b"config", b"layer")

    def end() -> None:
        raise SystemExit

    pushed.meanwhile = end
    with pytest.raises(SystemExit):
        pushed.store.collect(NOW)
    pushed.linked("ada/one", "_manifests/tags/1/current", name, 0)
    assert pushed.store.collect(NOW) == 0
    assert {name, number(b"config"), number(b"layer")} <= pushed.there()
    assert not list(pushed.root.rglob("*.aside"))


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificates that the role makes, for localhost."""
    directory = tmp_path_factory.mktemp("certified")
    (directory / "client").mkdir()
    script = (content.ROOT / "roles/container_images/files/make-certificates").read_text(encoding="utf-8")
    words = ["sh", "-c", script.replace("-g docker-registry", ""), "make", str(directory), "localhost", "30"]
    subprocess.run([*words, str(directory / "client")], check=True, timeout=60)
    return directory


def test_a_token_is_signed_by_the_registrys_key_and_says_what_docker_registry_asks(certified: Path) -> None:
    signer = TOKENS["Signer"](str(certified / "server.key"), str(certified / "server.crt"), "head:5003")
    given = [{"type": "repository", "name": "ada/train", "actions": ["pull", "push"]}]

    for _ in range(20):  # a number of a signature may be short
        head, claims, signature = signer.token(given, "ada", NOW).split(".")
        read = [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (head, claims)]
        raw = base64.urlsafe_b64decode(signature + "==")
        assert len(raw) == 64
        public = load_der_x509_certificate(base64.b64decode(read[0]["x5c"][0])).public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey)
        numbers = (int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
        public.verify(encode_dss_signature(*numbers), f"{head}.{claims}".encode(), ec.ECDSA(hashes.SHA256()))

    assert (read[0]["typ"], read[0]["alg"]) == ("JWT", "ES256")
    assert read[1] | {"jti": ""} == {
        **{"iss": "clusterctl", "sub": "ada", "aud": "head:5003", "jti": "", "access": given},
        **{"iat": NOW, "nbf": NOW - 10, "exp": NOW + 300},
    }


@pytest.fixture
def served(certified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The service, over TLS, with a munge that knows one credential."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    refusal = "{ echo 'unmunge: Error: Replayed credential' >&2; exit 17; }"
    text = f'#!/bin/sh\nread -r said\n[ "$said" = MUNGE:good: ] || {refusal}\n'
    uid = f"printf 'STATUS: 0\\nENCODE_TIME: %s\\nUID: {os.getuid() or 65534}\\n\\npush to head:5003' $(date +%s)\n"
    (bin_ / "unmunge").write_text(text + uid)
    (bin_ / "unmunge").chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_), prepend=":")
    Pushed(tmp_path / "store")
    options = argparse.Namespace(
        **{"registry": "head:5003", "store": str(tmp_path / "store"), "limit": 1, "free": 0},
        **{"key": str(certified / "server.key"), "certificate": str(certified / "server.crt")},
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.certificate, options.key)
    server = TOKENS["Server"](("localhost", 0), options, context)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"localhost:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def asked(host: str, certified: Path, scope: str, credential: str = "") -> tuple[int, Any]:
    """Return what the service answers."""
    headers = {"Authorization": "Basic " + base64.b64encode(f"munge:{credential}".encode()).decode()}
    request = urllib.request.Request(f"https://{host}/token?service=head:5003&scope={scope}", headers=headers)
    context = ssl.create_default_context(cafile=str(certified / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE, context=context) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_service_answers_registries_clients_while_others_say_nothing(served: str, certified: Path) -> None:
    host, _, port = served.partition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(3)]
    name = TOKENS["pwd"].getpwuid(os.getuid() or 65534).pw_name

    for _ in range(2):
        status, told = asked(served, certified, f"repository:{name}/train:pull,push", "MUNGE:good:")
        claims = json.loads(base64.urlsafe_b64decode(told["token"].split(".")[1] + "=="))
        assert (status, claims["sub"], claims["access"][0]["actions"]) == (200, name, ["pull", "push"])
    assert asked(served, certified, "repository:ada/train:pull")[0] == 200
    assert asked(served, certified, "")[0] == 200
    for credential, words in (
        ("", "push and remove in a job of this cluster"),
        ("MUNGE:forged:", "Replayed credential"),
        ("MUNGE:good:", f"{name} pushes to head:5003/{name}/ only"),
    ):
        status, told = asked(served, certified, "repository:another/train:pull,push", credential)
        assert (status, told["errors"][0]["code"]) == (401, "DENIED")
        assert words in told["errors"][0]["message"]
    for connection in silent:
        connection.close()


@pytest.mark.parametrize(
    ("addresses", "family"),
    [(["::1"], "AF_INET6"), (["127.0.0.1"], "AF_INET"), (["::1", "127.0.0.1"], "AF_INET")],
)
def test_it_listens_on_the_address_that_its_name_has(
    addresses: list[str], family: str, certified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [found for one in addresses for found in socket.getaddrinfo(one, 5004, type=socket.SOCK_STREAM)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: known)
    monkeypatch.setattr(TOKENS["socketserver"].TCPServer, "__init__", lambda *_: None)
    options = argparse.Namespace(
        **{"registry": "head:5003", "store": str(tmp_path), "limit": 1, "free": 0},
        **{"key": str(certified / "server.key"), "certificate": str(certified / "server.crt")},
    )

    assert TOKENS["Server"](("head", 5004), options, None).address_family == getattr(socket, family)


@pytest.mark.parametrize(
    "said",
    [
        b"GET /token HTTP/1.0\r\n" + (b"X: " + b"y" * 5000 + b"\r\n") * 20,
        b"GET /token?" + b"a=1&" * 99 + b" HTTP/1.0\r\n\r\n",
    ],
)
def test_who_says_too_much_or_nonsense_is_let_go(served: str, certified: Path, said: bytes) -> None:
    host, _, port = served.partition(":")
    context = ssl.create_default_context(cafile=str(certified / "ca.crt"))
    with (
        socket.create_connection((host, int(port)), timeout=PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname=host) as stream,
    ):
        try:
            stream.sendall(said)
            answer = stream.recv(100)
        except OSError:
            answer = b""
    assert answer == b"" or b" 401 " in answer
    assert asked(served, certified, "repository:ada/train:pull")[0] == 200


def test_who_speaks_slowly_has_ten_seconds_for_all_of_it(served: str, certified: Path) -> None:
    ours, theirs = socket.socketpair()
    words = TOKENS["Words"](theirs)
    words._end = words._end - 9.9
    ours.sendall(b"x")

    assert words.read(1) == b"x"
    with pytest.raises(OSError, match=r"timed out|took too long"):
        words.read(1)


def helped(tmp_path: Path, what: str, registry: str, munge: str = "echo MUNGE:$(cat):") -> tuple[int, str]:
    """Return how the credential helper of jobs ends, and what it prints."""
    (tmp_path / "munge").write_text(f"#!/bin/sh\n{munge}\n")
    (tmp_path / "munge").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "USERS_REGISTRY": str(tmp_path / "known")}
    done = subprocess.run(
        [str(HELPER), what], input=registry, capture_output=True, text=True, env=environment, check=False
    )
    return done.returncode, done.stdout.strip()


def test_podman_is_told_who_one_is_to_the_registry_of_users_images_and_to_no_other(tmp_path: Path) -> None:
    nothing = (1, "credentials not found in native keychain")

    assert helped(tmp_path, "get", "head:5003") == nothing
    (tmp_path / "known").write_text("head:5003 head:5000\n")
    status, told = helped(tmp_path, "get", "head:5003")
    assert status == 0
    assert json.loads(told) == {"ServerURL": "head:5003", "Username": "munge", "Secret": f"MUNGE:{PURPOSE}:"}
    assert json.loads(helped(tmp_path, "get", "head:5003\n")[1])["Username"] == "munge"
    for registry in ("head:5000", "docker.io", "", "head:5003/ada"):
        assert helped(tmp_path, "get", registry) == nothing
    assert helped(tmp_path, "get", "head:5003", munge="exit 1") == nothing
    assert helped(tmp_path, "erase", "head:5003") == nothing
    assert helped(tmp_path, "store", '{"ServerURL": "head:5003"}') == nothing
    assert helped(tmp_path, "list", "") == (0, "{}")
