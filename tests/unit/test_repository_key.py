"""Whether a repository's key is the expected one, worked out without gpg."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from machines import plugin

from provision import content

key = plugin("plugins/modules/repository_key.py")

#: Keys that come with roles, so that nothing has to be downloaded for them.
OURS = sorted(content.ROOT.glob("roles/*/files/*.asc"))


def gpg(home: Path, *words: str) -> bytes:
    command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", "", *words]
    return subprocess.run(command, check=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[bytes, bytes, str]]:
    """A key as gpg makes it: binary, armoured, and gpg's own word for its fingerprint."""
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    gpg(home, "--quick-generate-key", "somebody <somebody@localhost>", "rsa2048", "sign", "never")
    told = gpg(home, "--with-colons", "--fingerprint").decode()
    match = re.search(r"^fpr:+([0-9A-F]{40}):", told, re.M)
    assert match
    yield gpg(home, "--export"), gpg(home, "--armor", "--export"), match.group(1)
    # The agent that gpg has started would outlive the tests.
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True)


def test_the_fingerprint_is_the_one_that_gpg_tells(made: tuple[bytes, bytes, str]) -> None:
    binary, armoured, told = made

    assert key.fingerprints(binary) == key.fingerprints(armoured) == [told]


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(content.ROOT)))
def test_a_key_that_comes_with_a_role_is_the_one_whose_fingerprint_the_role_declares(
    path: Path, tmp_path: Path
) -> None:
    role = path.relative_to(content.ROOT / "roles").parts[0]
    declared = yaml.safe_load((content.ROOT / "roles" / role / "defaults/main.yml").read_text())[f"{role}_fingerprints"]
    tmp_path.chmod(0o700)

    rows = [row.split(":") for row in gpg(tmp_path, "--show-keys", "--with-colons", str(path)).decode().splitlines()]
    primary = [after[9] for before, after in pairwise(rows) if before[0] == "pub" and after[0] == "fpr"]

    assert primary == declared == key.fingerprints(path.read_bytes())
    # None that ends by itself, or was taken back, is worth bringing along.
    assert [row[6] for row in rows if row[0] == "pub"] == [""]


def test_what_is_written_is_the_same_key(made: tuple[bytes, bytes, str]) -> None:
    binary, armoured, _ = made

    assert key.dearmoured(key.armoured(binary).encode()) == key.dearmoured(armoured) == binary


def test_a_second_key_in_the_same_file_is_noticed(made: tuple[bytes, bytes, str]) -> None:
    binary, _, told = made
    other = bytes([0x99, 0, 8]) + b"\x04" + b"1234567"

    found = key.fingerprints(binary + other)

    assert len(key.unexpected(found, [told])) == 1


def test_spaces_and_small_letters_in_an_expected_fingerprint_do_not_matter() -> None:
    found = ["EB693B3035CD5710E231E123A4B469963BF863CC"]

    assert key.unexpected(found, ["eb69 3b30 35cd 5710 e231 e123 a4b4 6996 3bf8 63cc"]) == []
    assert key.unexpected(found, ["610C7B14E068A878070DA4E99CD0A493D42D0685"]) == found


@pytest.mark.parametrize(
    "data",
    [b"", b"<html>not found</html>", b"\x99\xff\xff", b"\x99", base64.b64encode(b"x"), b"\xb4\x05hello"],
    ids=["empty", "page", "cut off", "one byte", "text", "a name without a key"],
)
def test_what_is_no_key_is_refused(data: bytes) -> None:
    with pytest.raises(key.KeyProblemError):
        key.fingerprints(data)
