"""Signature Version 4 by the examples that AWS has published for S3."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from pilotage.core.policy.storage_model import S3Options
from pilotage.outside.storage.operations import S3Operation
from pilotage.outside.storage.s3 import S3Place
from pilotage.outside.storage.sigv4 import S3Credentials, S3Request, presigned, quoted_path

EXAMPLE = S3Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
NOW = datetime(2013, 5, 24, tzinfo=UTC).timestamp()


def test_the_published_example_of_a_presigned_address() -> None:
    request = S3Request("GET", "https://examplebucket.s3.amazonaws.com/test.txt")
    assert presigned(request, EXAMPLE, "us-east-1", NOW, 86400) == (
        "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
        "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )


def test_method_query_headers_and_token_are_signed() -> None:
    def signature(method: str = "PUT", key: S3Credentials = EXAMPLE, length: str = "", **query: str) -> str:
        headers = {"content-length": length} if length else {}
        request = S3Request(method, "https://s3.example.org/data/a", query, headers)
        signed = parse_qs(urlsplit(presigned(request, key, "us-east-1", NOW, 60)).query)
        return signed["X-Amz-Signature"][0]

    token = EXAMPLE._replace(session_token="a token/+=")
    signatures = {
        signature(),
        signature("DELETE"),
        signature(partNumber="1"),
        signature(partNumber="2"),
        signature(key=token),
        signature(length="1"),
        signature(length="2"),
    }
    assert len(signatures) == 7


def test_paths_and_queries_are_quoted_once() -> None:
    assert quoted_path("a b/ü+~*'()&=.txt") == "a%20b/%C3%BC%2B~%2A%27%28%29%26%3D.txt"
    request = S3Request("GET", "https://s3.example.org/data", {"prefix": "a b/~", "uploads": ""})
    address = presigned(request, EXAMPLE, "eu-west-1", NOW, 60)
    assert "prefix=a%20b%2F~&uploads=&X-Amz-Signature=" in address, "sorted by name, the signature is last"


def test_a_key_is_never_shown() -> None:
    assert EXAMPLE.secret_key not in repr(EXAMPLE)


def test_each_name_of_a_file_is_an_object_of_its_own_with_all_of_its_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", EXAMPLE.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", EXAMPLE.secret_key)
    options = S3Options(endpoint="https://s3.example.org", bucket="data", prefix="out")
    place = S3Place(options)
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    odd = "#?%&=+;:@ ü/.a[]~'\\"
    names = {"part#1", "part#2", "a?b", "a b", "a+b", *("".join(draw.choices(odd, k=4)) for _ in range(200))}
    for operation in ("put", "get", "head", "remove", "begin", "part", "complete", "abort"):
        for name in names:
            signed = place.sign(S3Operation(operation, f"{options.address}/{name}"), NOW)
            assert unquote(urlsplit(signed.address).path) == f"/data/out/{name}"
            assert not urlsplit(signed.address).fragment
    for name in names:
        listed = place.sign(
            S3Operation("list", f"{options.address}/{name}/", after=f"{options.address}/{name}"), NOW
        )
        query = parse_qs(urlsplit(listed.address).query)
        assert (query["prefix"], query["start-after"]) == ([f"out/{name}/"], [f"out/{name}"])
    place.close()
