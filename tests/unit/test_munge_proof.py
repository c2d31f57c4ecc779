"""What a machine says of its munge key and of credentials, without munge and without showing the key."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest
from machines import plugin

proof = plugin("roles/munge/library/munge_proof.py")
shared_key = plugin("plugins/modules/shared_key.py")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What each program prints, and whether it succeeds."""
    told: dict[str, Any] = {"munge": ("MUNGE:abc:", True)}
    monkeypatch.setattr(proof, "run", lambda argv, stdin="", user=None: told[argv[0]])
    return told


def test_a_key_is_told_by_mode_owner_and_a_hash_that_only_its_holders_can_make(
    said: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "munge.key").write_bytes(b"k" * 64)
    (tmp_path / "munge.key").chmod(0o400)

    found = proof.of_this_machine(str(tmp_path / "munge.key"), "0a")

    expected = hmac.new(b"\x0a", b"k" * 64, hashlib.sha256).hexdigest()
    assert found["key"]["fingerprint"] == shared_key.fingerprint(b"k" * 64, "0a") == expected
    assert found["key"]["mode"] == "0400"
    assert found["credential"] == "MUNGE:abc:"
    assert not found["hung"]


def test_without_a_key_it_says_why(said: dict[str, Any], tmp_path: Path) -> None:
    said["munge"] = ("munge: Error: Unable to access socket", False)

    found = proof.of_this_machine(str(tmp_path / "none"), "")

    assert found["key"]["absent"] == "No such file or directory"
    assert found["credential"] == ""
    assert found["error"].startswith("munge: Error")


def test_a_munged_that_hangs_is_said_to(said: dict[str, Any], tmp_path: Path) -> None:
    said["munge"] = (proof.HUNG, False)

    assert proof.of_this_machine(str(tmp_path / "none"), "")["hung"]


def test_what_munge_says_to_a_credential_is_its_status_and_both_times(said: dict[str, Any]) -> None:
    said["unmunge"] = (
        "STATUS:          Success (0)\n"
        "ENCODE_TIME:     2026-01-01 10:00:00 +0000 (1767261600)\n"
        "DECODE_TIME:     2026-01-01 10:00:02 +0000 (1767261602)\n",
        True,
    )

    assert proof.decode("MUNGE:abc:") == {"status": "Success (0)", "encode": 1767261600, "decode": 1767261602}
