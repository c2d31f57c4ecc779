"""Whether a repository's key is the expected one, worked out without gpg."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from machines import OURS as ROOTS
from machines import plugin, run_module, state

from provision import content
from provision.model.places import Place, difference
from provision.nvidia import driver_packages

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
    defaults = yaml.safe_load((content.ROOT / "roles" / role / "defaults/main.yml").read_text())
    # The driver's role has a table of them, by system.
    of_systems = [fingerprint for fingerprint, name in driver_packages.KEYS.items() if name == path.name]
    declared = of_systems if role == "nvidia_driver" else defaults[f"{role}_fingerprints"]
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


@pytest.fixture
def kept(made: tuple[bytes, bytes, str], tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A key that is there, and how it is asked for."""
    path = tmp_path / "key.asc"
    path.write_bytes(made[1])
    path.chmod(0o600)
    return path, {"path": str(path), "url": "file:///nowhere", "fingerprints": [made[2]], "mode": "0644"}


def test_a_key_that_is_there_is_not_fetched_and_gets_its_mode(kept: tuple[Path, dict[str, Any]]) -> None:
    path, asked = kept

    first, second = (run_module("plugins/modules/repository_key.py", asked) for _ in range(2))

    assert (first["changed"], second["changed"], path.stat().st_mode & 0o777) == (True, False, 0o644)


def test_a_key_without_armour_which_apt_would_not_read_is_made_anew(
    kept: tuple[Path, dict[str, Any]], made: tuple[bytes, bytes, str], tmp_path: Path
) -> None:
    path, asked = kept
    path.write_bytes(made[0])
    (tmp_path / "source").write_bytes(made[1])

    told = run_module("plugins/modules/repository_key.py", {**asked, "url": f"file://{tmp_path}/source"})

    assert (told["changed"], key.fingerprints(path.read_bytes())) == (True, [made[2]])
    assert path.read_bytes().startswith(b"-----BEGIN")


def test_a_machine_tells_which_keys_a_file_holds(made: tuple[bytes, bytes, str], tmp_path: Path) -> None:
    wanted = Place("/key.asc", mode="0644", fingerprints=(made[2].lower(),))

    def said(text: bytes) -> str:
        (tmp_path / "key.asc").write_bytes(text)
        (answer,) = state.paths(tmp_path, ["/key.asc"], contents=["/key.asc"]).values()
        found = difference(wanted, "file", {**answer, **ROOTS, "mode": "0644"})
        return found[1] if found else ""

    assert said(made[1]) == ""
    other = OURS[0].read_bytes()
    for text in (b"", made[0], b"no key", other, made[1] + other):
        assert said(text) == "holds another key than the expected one, or none"
