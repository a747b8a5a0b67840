"""The adapter of Rucio, on answers that were recorded from Rucio 41.5.1, and on answers that no Rucio should give."""

from __future__ import annotations

import json
import ssl
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from pilotage.core.datasets.facts import FileEntry, Replica
from pilotage.core.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    PilotageError,
    Unreachable,
)
from pilotage.core.policy.catalogue_model import CataloguePlace
from pilotage.core.policy.catalogue_types.rucio import RucioOptions
from pilotage.outside.catalogue.adapter import BlockPlaces, CatalogueBlock, OutgoingBlock
from pilotage.outside.catalogue.rucio.credentials import find_token
from pilotage.outside.catalogue.rucio.paths import relative_path
from pilotage.outside.catalogue.rucio.session import RucioSession
from pilotage.server.process.certificates import make_certificate
from tests.unit.outside.catalogue.recorded_rucio import RSE, Rucio, did, lock, refusal, replica
from tests.unit.tls.recording_server import recording


@pytest.fixture
def options(tmp_path: Path) -> RucioOptions:
    (tmp_path / "password").write_text("pass-word\n")
    return RucioOptions(
        url="http://rucio.example.org/",
        auth="userpass",
        account="root",
        username="ddmlab",
        password_file=str(tmp_path / "password"),
    )


@pytest.fixture
def rucio(options: RucioOptions) -> Rucio:
    return Rucio(options)


# --- reading


def test_a_container_has_the_data_sets_of_all_containers_below_each_once(rucio: Rucio) -> None:
    rucio.answers |= {
        "GET /dids/data26/top?dynamic_depth=DATASET": did("top", "CONTAINER", open=False, length=3),
        "GET /dids/data26/top/dids": [did("one"), did("below", "CONTAINER"), did("two")],
        "GET /dids/data26/below/dids": [did("two"), did("top", "CONTAINER"), did("three")],
        "POST /dids/bulkmeta": [
            {"scope": "data26", "name": "one", "is_open": False, "length": 3},
            {"scope": "data26", "name": "two", "is_open": True, "length": None},
            {"scope": "data26", "name": "three"},
        ],
    }
    contents = rucio.catalogue.contents("data26:top")
    assert not contents.is_open
    assert contents.blocks == (
        CatalogueBlock("data26:one", False, 3),
        CatalogueBlock("data26:two", True, None),
        # Rucio does not tell whether it is open: more files may come.
        CatalogueBlock("data26:three", True, None),
    )


def test_a_data_set_is_its_only_block_and_a_file_is_none(rucio: Rucio) -> None:
    rucio.answers |= {
        "GET /dids/data26/one?dynamic_depth=DATASET": did("one", open=True, length=3),
        "GET /dids/data26/file": did("file", "FILE"),
        "POST /dids/bulkmeta": [{"scope": "data26", "name": "one", "is_open": False, "length": 3}],
        "GET /dids/data26/%2FA%2FB": did("/A/B", "CONTAINER", open=True),
    }
    assert rucio.catalogue.contents("data26:one").blocks == (CatalogueBlock("data26:one", False, 3),)
    rucio.catalogue.check("data26:/A/B")
    with pytest.raises(InvalidInput, match="is a file"):
        rucio.catalogue.check("data26:file")
    with pytest.raises(InvalidInput, match="no name of Rucio"):
        rucio.catalogue.check("data26")


def test_files_have_their_paths_as_names(rucio: Rucio) -> None:
    row = {"scope": "data26", "name": "run.2026.AOD.block0000.f000.root", "bytes": 2000000000}
    counted = did("one", open=False, length=2) | {"bytes": 2000000000}
    rucio.answers["GET /dids/data26/one?dynamic_depth=FILE"] = counted
    rucio.answers["GET /dids/data26/one/files"] = [
        {**row, "adler32": "bb8", "guid": "430B02F98365451DA3D475B198AE59C8", "events": 1000},
        {**row, "scope": "user.ada", "name": "x", "bytes": None, "adler32": None, "events": None},
    ]
    first, second = rucio.catalogue.files("data26:one")
    assert first == FileEntry(
        "data26/61/d8/run.2026.AOD.block0000.f000.root", 2000000000, 1000, "adler32:00000bb8"
    )
    assert (second.name.split("/")[:2], second.size, second.checksum) == (["user", "ada"], 0, "")
    assert relative_path("identity", "data26", "a/b") == "data26/a/b"


def test_a_block_is_where_a_rule_keeps_all_of_its_files_and_nowhere_else(rucio: Rucio) -> None:
    rucio.answers |= {
        "POST /locks/bulk_locks_for_dids": [
            lock("kept", "T1_SITE_A"),
            lock("moving", "T1_SITE_A", "REPLICATING"),
            lock("damaged", "T1_SITE_A"),
            lock("elsewhere", "T9"),
        ],
        "GET /replicas/data26/kept/datasets?deep=True": [replica("T1_SITE_A", 3), replica("T2", 3)],
        "GET /replicas/data26/damaged/datasets?deep=True": [replica("T1_SITE_A", 2)],
        "GET /replicas/data26/elsewhere/datasets?deep=True": [replica("T9", 3)],
    }
    names = ["kept", "moving", "damaged", "elsewhere", "free"]
    places = rucio.catalogue.places([f"data26:{name}" for name in names])
    here = (Replica("a", "root://se0.example.org:1094//store"),)
    assert places == {
        "data26:kept": BlockPlaces(here),
        "data26:moving": BlockPlaces(()),
        "data26:damaged": BlockPlaces(()),
        "data26:elsewhere": BlockPlaces((), ("T9: the policy names no site for it",)),
        "data26:free": BlockPlaces(()),
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"availability_read": False}, "it may not be read now"),
        ({"deterministic": False}, "it is not deterministic"),
        ({"lfn2pfn_algorithm": "identity"}, "its paths follow identity, not hash"),
        ({"protocols": []}, "it has no protocol that can be used"),
    ],
)
def test_an_rse_that_cannot_be_read_is_named_with_the_reason(
    rucio: Rucio, change: dict[str, object], reason: str
) -> None:
    rucio.answers |= {
        "GET /rses/T1_SITE_A": {**RSE, **change},
        "POST /locks/bulk_locks_for_dids": [lock("one", "T1_SITE_A")],
        "GET /replicas/data26/one/datasets?deep=True": [replica("T1_SITE_A", 3)],
    }
    assert rucio.catalogue.places(["data26:one"]) == {
        "data26:one": BlockPlaces((), (f"T1_SITE_A: {reason}",))
    }


def test_the_policy_may_give_a_folder_in_place_of_the_protocol(options: RucioOptions) -> None:
    rucio = Rucio(options, T1_SITE_A=CataloguePlace(site="a", prefix="/store/"))
    rucio.answers |= {
        "POST /locks/bulk_locks_for_dids": [lock("one", "T1_SITE_A")],
        "GET /replicas/data26/one/datasets?deep=True": [replica("T1_SITE_A", 3)],
    }
    assert rucio.catalogue.places(["data26:one"])["data26:one"].replicas == (Replica("a", "/store"),)


# --- refusals and outages


def test_an_expired_token_is_replaced_once_and_never_shown(rucio: Rucio) -> None:
    tokens = iter(["secret-1", "secret-2", "secret-3"])
    rucio.answers["GET /auth/userpass"] = lambda _: httpx.Response(
        200, headers={"X-Rucio-Auth-Token": next(tokens)}
    )

    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers["X-Rucio-Auth-Token"] == "secret-2":
            return httpx.Response(200, json=did("one"))
        return refusal(401, "CannotAuthenticate", "Cannot authenticate with given credentials")

    rucio.answers["GET /dids/data26/one"] = answer
    rucio.catalogue.check("data26:one")
    rucio.answers["GET /dids/data26/one"] = refusal(401, "CannotAuthenticate", "Cannot authenticate")
    with pytest.raises(NotAuthenticated) as refused:
        rucio.catalogue.check("data26:one")
    assert "secret" not in str(refused.value)
    assert "pass-word" not in str(refused.value)


def test_a_token_that_has_expired_is_replaced_although_the_server_answers_500(rucio: Rucio) -> None:
    """Rucio's own answer of /auth/validate to a token that it does not know."""
    tokens = iter(["old", "new"])
    rucio.answers["GET /auth/userpass"] = lambda _: httpx.Response(
        200, headers={"X-Rucio-Auth-Token": next(tokens)}
    )

    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers["X-Rucio-Auth-Token"] == "new":
            return httpx.Response(200, json={"lifetime": "2026-11-26T16:00:00"})
        return refusal(500, "CannotAuthenticate", "NoneType: None\n")

    rucio.answers["GET /auth/validate"] = answer
    assert rucio.catalogue.greet() == "Rucio 41.5.1, account root"
    rucio.answers["GET /auth/userpass"] = httpx.Response(200, headers={"X-Rucio-Auth-Token": "other"})
    rucio.answers["GET /auth/validate"] = refusal(500, "CannotAuthenticate", "NoneType: None\n")
    with pytest.raises(NotAuthenticated, match="credentials: CannotAuthenticate"):
        rucio.catalogue.greet()


ANSWERS: list[tuple[httpx.Response | Exception, type[PilotageError], str]] = [
    (refusal(403, "AccessDenied", "Account x can not"), Forbidden, "Account x can not"),
    (refusal(404, "DataIdentifierNotFound", "Data identifier 'data26:one' not found"), NotFound, "not found"),
    (httpx.Response(404, text="<!doctype html>"), Unreachable, "answers 404"),
    (httpx.Response(403, text="<Error><Code>AccessDenied"), Unreachable, "answers 403: Forbidden"),
    (httpx.Response(503, text="Service Unavailable"), Unreachable, "answers 503"),
    (refusal(500, "DatabaseException", "database is locked"), Unreachable, "database is locked"),
    (refusal(500, "RSEProtocolNotSupported", "No protocol"), Conflict, "RSEProtocolNotSupported"),
    (httpx.Response(200, text="<html>a portal"), Unreachable, "cannot be read"),
    (httpx.Response(200, json={"names": ["data26:one"]}), Unreachable, "another version"),
    (httpx.ReadTimeout("slow"), Unreachable, "has not answered for 60 s"),
    (httpx.RemoteProtocolError("peer closed connection"), Unreachable, "peer closed connection"),
]


@pytest.mark.parametrize(("answer", "error", "said"), ANSWERS)
def test_each_refusal_has_its_error(
    rucio: Rucio, answer: httpx.Response | Exception, error: type[PilotageError], said: str
) -> None:
    def answered(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    rucio.answers["GET /dids/data26/one"] = answered
    with pytest.raises(error, match=said):
        rucio.catalogue.check("data26:one")


def test_an_answer_that_ends_amid_a_line_is_no_answer(rucio: Rucio) -> None:
    rucio.answers["GET /dids/data26/one?dynamic_depth=FILE"] = did("one", open=False, length=2)
    rucio.answers["GET /dids/data26/one/files"] = httpx.Response(
        200, text='{"scope": "data26", "name": "x"}\n{"sco'
    )
    with pytest.raises(Unreachable, match="cannot be read"):
        rucio.catalogue.files("data26:one")


def test_an_rse_of_the_policy_that_rucio_does_not_have_is_named(options: RucioOptions) -> None:
    rucio = Rucio(options, T1_SITE_A=CataloguePlace(site="a"), T9=CataloguePlace(site="a"))
    said = rucio.catalogue.greet()
    assert (
        said
        == "Rucio 41.5.1, account root; it has no RSE T9: correct `places` of the catalogue in the policy"
    )


def test_another_server_is_not_taken_for_rucio(rucio: Rucio) -> None:
    assert rucio.catalogue.greet() == "Rucio 41.5.1, account root"
    rucio.answers["GET /ping"] = httpx.Response(200, text="pong")
    with pytest.raises(Unreachable, match="no Rucio server"):
        rucio.catalogue.greet()


def test_a_certificate_that_nobody_trusts_is_told_without_a_try_in_plain_text(
    options: RucioOptions, tmp_path: Path
) -> None:
    certificate = tmp_path / "certificate.pem"
    certificate.write_text(make_certificate(["127.0.0.1"], time.time()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with recording(context) as server:
        url = f"https://127.0.0.1:{server.port}"
        changed = msgspec.structs.replace(options, url=url)
        with pytest.raises(Unreachable, match="certificate verify failed"):
            RucioSession(changed).version()
    with pytest.raises(Unreachable, match="cannot be used: No such file"):
        RucioSession(msgspec.structs.replace(options, ca_file="/nonexistent/ca.pem")).version()


def test_tokens_are_found_in_the_order_of_wlcg(tmp_path: Path) -> None:
    (tmp_path / "bt_u7").write_text("of-the-session\n")
    (tmp_path / "named").write_text("of-the-variable\n")
    (tmp_path / "policy").write_text("of-the-policy\n")
    variables = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert find_token("", variables, 7) == "of-the-session"
    variables["BEARER_TOKEN_FILE"] = str(tmp_path / "named")
    assert find_token("", variables, 7) == "of-the-variable"
    variables["BEARER_TOKEN"] = " in-the-variable "
    assert find_token("", variables, 7) == "in-the-variable"
    assert find_token(str(tmp_path / "policy"), variables, 7) == "of-the-policy"
    with pytest.raises(NotAuthenticated, match="no bearer token was found"):
        find_token("", {}, 987654321)
    (tmp_path / "policy").write_text("\n")
    with pytest.raises(NotAuthenticated, match="has no token"):
        find_token(str(tmp_path / "policy"), {}, 7)


# --- outputs

BLOCK = OutgoingBlock(
    "data26:out",
    "a#2",
    (Replica("a", "/store/rucio:data26:out"),),
    (FileEntry("1/2-0/f.txt", 5, 7, "adler32:0000000b"),),
)
NAME = "out.1.2-0.f.txt"


@pytest.fixture
def writable(options: RucioOptions) -> Rucio:
    """A Rucio that has nothing of the block."""
    rucio = Rucio(options, T1_SITE_A=CataloguePlace(site="a", prefix="/store"))
    created = httpx.Response(201, text="Created")
    rucio.answers |= {
        "GET /rses/T1_SITE_A": {**RSE, "deterministic": False},
        "POST /dids/data26/out": created,
        "POST /dids/data26/out.a.2": created,
        "POST /replicas": created,
        "POST /dids/attachments": created,
        "GET /dids/data26/out.a.2?dynamic_depth=FILE": did("out.a.2", open=True, length=1) | {"bytes": 5},
        "GET /dids/data26/out.a.2/files": [
            {"scope": "data26", "name": NAME, "bytes": 5, "adler32": "0000000b"}
        ],
        "PUT /dids/data26/out.a.2/status": httpx.Response(200),
        "POST /rules/": created,
    }
    return rucio


def bodies(rucio: Rucio, path: str) -> list[Any]:
    return [json.loads(request.content) for request in rucio.requests if request.url.path == path]


def test_a_block_becomes_a_closed_data_set_of_the_container(writable: Rucio) -> None:
    writable.catalogue.register(BLOCK)
    [replicas] = bodies(writable, "/replicas")
    [file] = replicas["files"]
    assert replicas["rse"] == "T1_SITE_A"
    assert (file["name"], file["bytes"], file["adler32"]) == (NAME, 5, "0000000b")
    assert file["pfn"] == "root://se0.example.org:1094//store/rucio:data26:out/1/2-0/f.txt"
    files, container = bodies(writable, "/dids/attachments")
    assert files["attachments"][0]["name"] == "out.a.2"
    assert container["attachments"][0]["dids"] == [{"scope": "data26", "name": "out.a.2"}]
    paths = [request.url.path for request in writable.requests]
    assert paths.index("/dids/data26/out.a.2/status") < paths.index("/rules/") < len(paths) - 1
    assert bodies(writable, "/rules/")[0]["rse_expression"] == "T1_SITE_A"


def test_a_registration_that_is_repeated_changes_nothing(writable: Rucio) -> None:
    exists = refusal(409, "DataIdentifierAlreadyExists", "Data Identifier already exists!")
    closed = refusal(409, "UnsupportedOperation", "Data identifier 'data26:out.a.2' is closed")
    attachments = iter([closed, httpx.Response(201)])
    writable.answers |= {
        "POST /dids/data26/out": exists,
        "GET /dids/data26/out": did("out", "CONTAINER"),
        "POST /dids/data26/out.a.2": exists,
        "GET /dids/data26/out.a.2": did("out.a.2"),
        "POST /dids/attachments": lambda _: next(attachments),
        "PUT /dids/data26/out.a.2/status": closed,
        "POST /rules/": refusal(409, "DuplicateRule", "UNIQUE constraint failed"),
    }
    writable.catalogue.register(BLOCK)


REFUSED: list[tuple[str, Any, str]] = [
    (
        "GET /dids/data26/out.a.2/files",
        [{"scope": "data26", "name": NAME, "bytes": 5, "adler32": "c"}],
        "has other files",
    ),
    ("GET /rses/T1_SITE_A", RSE, "is deterministic"),
    ("POST /rules/", refusal(409, "InsufficientAccountLimit", "no quota"), "no quota"),
]


@pytest.mark.parametrize(("call", "answer", "said"), REFUSED)
def test_a_block_that_rucio_does_not_have_as_it_is_stays_out_of_the_container(
    writable: Rucio, call: str, answer: Any, said: str
) -> None:
    writable.answers[call] = answer
    with pytest.raises(Conflict, match=said):
        writable.catalogue.register(BLOCK)
    assert not [
        body for body in bodies(writable, "/dids/attachments") if body["attachments"][0]["name"] == "out"
    ]


def test_a_block_without_rse_or_checksum_is_refused(writable: Rucio) -> None:
    with pytest.raises(Conflict, match="no RSE has /elsewhere of a"):
        writable.catalogue.register(BLOCK._replace(replicas=(Replica("a", "/elsewhere"),)))
    with pytest.raises(Conflict, match="no adler32 checksum"):
        writable.catalogue.register(BLOCK._replace(files=(FileEntry("f", 1, 0, "md5:0"),)))


def test_the_end_of_a_container_may_be_told_twice(writable: Rucio) -> None:
    closed = refusal(409, "UnsupportedOperation", "cannot be changed")
    writable.answers["PUT /dids/data26/out/status"] = closed
    writable.catalogue.finish("data26:out")
    writable.answers["PUT /dids/data26/out/status"] = refusal(403, "AccessDenied", "not yours")
    with pytest.raises(Forbidden):
        writable.catalogue.finish("data26:out")


SHORT: list[tuple[str, Any, str]] = [
    (
        "GET /dids/data26/top/dids",
        [did("one"), did("empty")],
        r"2 data sets with 3 files are listed; Rucio counts 5",
    ),
    ("GET /dids/data26/top/dids", [did("one"), did("two")], "were listed twice, and the lists differ"),
    (
        "POST /dids/bulkmeta",
        [{"scope": "data26", "name": "one", "length": 3}],
        "tells no facts of 2 data sets",
    ),
]


@pytest.mark.parametrize(("call", "first", "said"), SHORT)
def test_a_short_list_of_a_container_is_unknown(rucio: Rucio, call: str, first: Any, said: str) -> None:
    whole = {
        "GET /dids/data26/top?dynamic_depth=DATASET": did("top", "CONTAINER", open=False, length=5),
        "GET /dids/data26/top/dids": [did("one"), did("two"), did("empty")],
        "POST /dids/bulkmeta": [
            {"scope": "data26", "name": name, "is_open": name == "empty", "length": length}
            for name, length in (("one", 3), ("two", 2), ("empty", None))
        ],
    }
    rucio.answers |= whole
    answers = iter([first, whole[call]])

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text="".join(f"{json.dumps(row)}\n" for row in next(answers)))

    rucio.answers[call] = answer
    with pytest.raises(Unreachable, match=said):
        rucio.catalogue.contents("data26:top")
    rucio.answers |= whole
    assert len(rucio.catalogue.contents("data26:top").blocks) == 3


def test_a_list_of_files_that_grows_is_taken_and_one_that_lacks_files_is_not(rucio: Rucio) -> None:
    rows = [{"scope": "data26", "name": str(number), "bytes": 10} for number in range(3)]
    rucio.answers["GET /dids/data26/one/files"] = rows
    for is_open, counted in ((True, 2), (True, 3), (False, 3)):
        told = did("one", open=is_open, length=counted) | {"bytes": counted * 10}
        rucio.answers["GET /dids/data26/one?dynamic_depth=FILE"] = told
        assert len(rucio.catalogue.files("data26:one")) == 3
    for is_open, counted, size in ((True, 4, 40), (False, 2, 20), (False, 3, 31)):
        told = did("one", open=is_open, length=counted) | {"bytes": size}
        rucio.answers["GET /dids/data26/one?dynamic_depth=FILE"] = told
        with pytest.raises(Unreachable, match="Rucio counts"):
            rucio.catalogue.files("data26:one")
    rucio.answers["GET /dids/data26/one/files"] = [*rows, rows[0]]
    with pytest.raises(Unreachable, match="a file twice"):
        rucio.catalogue.files("data26:one")
