"""The server's own credential for an ARC CE: where it is found, when it is read again, and why it is not used."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest

from pilotage.core.policy.batch_systems.arc import ArcOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.arc.credentials import InvalidCredential, find_credential, tls_context
from pilotage.outside.batch.submission import SubmissionFailed, SubmissionRefusal
from tests.arc_certificates import TestAuthority
from tests.arc_double import NOW, DoubledArc, adapter

PILOT = BatchSubmission("pilotage-1a2b", 1, Shape(1), "#!/bin/sh\n")


def token(expiry: float) -> str:
    return jwt.encode({"sub": "pilots", "exp": int(expiry)}, "k" * 32, "HS256")


def test_a_token_of_the_policy_goes_before_a_certificate_and_those_of_the_environment(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("own\n")
    environment = {"BEARER_TOKEN": "other"}
    options = ArcOptions(url="https://ce", token_file=str(own), certificate="/nosuch")
    assert find_credential(options, environment, 1).token == "own"
    assert find_credential(ArcOptions(), environment, 1).token == "other"


def test_tokens_of_the_account_are_found_in_the_order_of_the_wlcg(tmp_path: Path) -> None:
    named, found = tmp_path / "named", tmp_path / f"bt_u{os.getuid()}"
    named.write_text("named")
    found.write_text("found")
    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    uid = os.getuid()
    assert find_credential(ArcOptions(), environment, uid).token == "found"
    environment["BEARER_TOKEN_FILE"] = str(named)
    assert find_credential(ArcOptions(), environment, uid).token == "named"
    environment["BEARER_TOKEN"] = "told"
    assert find_credential(ArcOptions(), environment, uid).token == "told"
    with pytest.raises(InvalidCredential, match="no credential for the CE"):
        find_credential(ArcOptions(), {}, 1_234_567)


@pytest.mark.parametrize("text", ["", "two words", "t\u00f6ken", "a\nb"])
def test_a_text_that_is_no_token_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(InvalidCredential) as refused:
        find_credential(ArcOptions(token_file=str(tmp_path / "token")), {}, 1)
    assert "must be one word" in str(refused.value)
    assert not text or text not in str(refused.value)


def test_a_token_stands_in_no_representation(tmp_path: Path) -> None:
    assert "hidden" not in repr(find_credential(ArcOptions(), {"BEARER_TOKEN": "hidden"}, 1))


def test_a_renewed_token_counts_at_the_next_call(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token(NOW - 5))
    ce = DoubledArc()
    batch = adapter(ce, {}, token_file=str(file))
    failure = batch.list_pilots().failure
    assert re.search("the token in .*token has expired on 2027-01-15 07:59:55 UTC", failure)
    assert not ce.calls, "nothing is sent with an expired token"
    renewed = token(NOW + 3600)
    file.write_text(renewed)
    assert batch.list_pilots().complete
    assert ce.calls[-1][2]["authorization"] == f"Bearer {renewed}"


def test_a_credential_that_ends_soon_lists_and_submits_nothing(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token(NOW + 200))
    ce = DoubledArc()
    batch = adapter(ce, {}, token_file=str(file))
    assert batch.list_pilots().complete
    with pytest.raises(SubmissionFailed) as failed:
        batch.submit(PILOT)
    assert failed.value.refusal is SubmissionRefusal.REFUSED
    assert "is valid for 200 s more, and `credential_left` asks for 300 s" in failed.value.reason
    assert not ce.targets("POST")


def test_an_expired_certificate_is_told_with_its_end(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "ca", "CA")
    issued = authority.issue("pilots", tmp_path / "old", lifetime=timedelta(days=-1))
    options = ArcOptions(certificate=str(issued.certificate), key=str(issued.key))
    found = find_credential(options, {}, 1)
    with pytest.raises(InvalidCredential, match=r"the certificate in .* has expired on 20"):
        found.require(found.expiry + 1)


def test_a_key_of_another_certificate_and_a_missing_ca_are_told(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "ca", "CA")
    one, other = (authority.issue(name, tmp_path / name) for name in ("one", "other"))
    wrong = ArcOptions(certificate=str(one.certificate), key=str(other.key), ca=str(authority.folder))
    with pytest.raises(InvalidCredential, match=rf"cannot be used with the key in {other.key}"):
        tls_context(wrong, {}, find_credential(wrong, {}, 1))
    keyless = ArcOptions(certificate=str(one.certificate), ca=str(authority.folder))
    with pytest.raises(InvalidCredential, match="cannot be used with the key in") as told:
        tls_context(keyless, {}, find_credential(keyless, {}, 1))
    assert "`key`" in told.value.hint
    missing = ArcOptions(certificate=str(one.certificate), key=str(one.key), ca=str(tmp_path / "nosuch"))
    with pytest.raises(InvalidCredential, match="nosuch cannot be read"):
        tls_context(missing, {}, find_credential(missing, {}, 1))


@pytest.mark.parametrize("path", ["/nosuch/token", "/"])
def test_a_file_that_cannot_be_read_is_told(path: str) -> None:
    with pytest.raises(InvalidCredential, match="cannot be read"):
        find_credential(ArcOptions(token_file=path), {}, 1)


@pytest.mark.parametrize(
    ("options", "key", "words"),
    [
        ({}, "url", "is missing"),
        ({"url": "http://ce/arex"}, "url", "must begin with https://"),
        ({"url": "https://"}, "url", "must have a host"),
        ({"url": "https://ce:port/arex"}, "url", "cannot be read"),
        ({"url": "https://me@ce/arex"}, "url", "no user"),
        ({"url": "https://ce/arex", "token_file": "token"}, "token_file", "absolute path"),
        ({"url": "https://ce/arex", "key": "/k"}, "key", "set `certificate`"),
        ({"url": "https://ce/arex", "rte": "A B;C"}, "rte", "'B;C' is no name"),
        ({"url": "https://ce/arex", "queue": "a b"}, "queue", "must be a name"),
    ],
)
def test_options_that_no_ce_could_use_are_mistakes(options: dict[str, Any], key: str, words: str) -> None:
    [(wrong, reason)] = ArcOptions(**options).mistakes()
    assert wrong == key
    assert words in reason
