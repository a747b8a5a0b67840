"""The first copy of a container of a real Rucio server, beside reading its lists alone.

Rucio has SQLite below it, and answers one request at a time. The same adapter reads its lists, without a store.
SQLite gets its statistics after the fill: without them it looks through all files for the places of one data set.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

from tests.rucio import RucioServer, environment_folder, running_rucio

from benchmarks.figure import Figure, told
from benchmarks.server import served
from benchmarks.shapes import Absent
from pilotage.client import Client
from pilotage.core.policy.catalogue_model import CataloguePlace
from pilotage.outside.catalogue.rucio.adapter import RucioCatalogue
from pilotage.outside.catalogue.rucio.session import RucioSession

SUMMARY = "s to copy a container of 100,000 files from Rucio, beside its own lists"

NAME = "data26:all"
AIM = 60.0
"""Seconds beside the lists."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=100_000, help="files of the container")
    parser.add_argument("--block", type=int, default=1000, help="files of a data set")


def run(asked: argparse.Namespace) -> Figure:
    if reason := environment_folder()[1]:
        raise Absent(reason)
    with (
        tempfile.TemporaryDirectory(prefix="bench-rucio-") as name,
        running_rucio(Path(name) / "rucio") as rucio,
    ):
        _fill(rucio, asked.files, asked.block)
        lists = _read_lists(rucio)
        with served(Path(name)) as client:
            _add_catalogue(client, rucio)
            first = _copy(client, asked.files)
            again = _copy(client, asked.files)
    notes = {
        "case": f"{asked.files:,} files in data sets of {asked.block:,}; Rucio on SQLite, one request at a time",
        "lists": f"{told(lists)} s for the lists of data sets, files, rules and replicas alone",
        "beside": f"{told(first - lists)} s beside the lists; the aim is {AIM:g} s",
        "again": f"{told(again)} s for a reading that finds nothing new",
    }
    limits = {"lists": round(lists, 1)}
    return Figure("rucio", round(first, 1), "s", limits, round(first / lists, 2), [round(first, 1)], notes)


def _fill(rucio: RucioServer, count: int, block: int) -> None:
    rucio.add_rse("DISK", "/store")
    rucio.add_container("all")
    for first in range(0, count, block):
        files = [
            {"name": f"all.{number}", "bytes": 1000, "adler32": f"{number:08x}"}
            for number in range(first, min(count, first + block))
        ]
        rucio.add_dataset(f"all.block{first}", "DISK", files, container="all")
    with closing(sqlite3.connect(rucio.database)) as connection:
        connection.execute("ANALYZE")


def _read_lists(rucio: RucioServer) -> float:
    begun = time.perf_counter()
    places = {"DISK": CataloguePlace(site="here")}
    catalogue = RucioCatalogue(RucioSession(rucio.options), rucio.options, places)
    contents = catalogue.contents(NAME)
    for block in contents.blocks:
        catalogue.files(block.name)
    catalogue.places([block.name for block in contents.blocks])
    return time.perf_counter() - begun


def _add_catalogue(client: Client, rucio: RucioServer) -> None:
    policy = client.policy().text
    site = next(iter(client.sites())).name
    client.apply_policy(
        f"""{policy}
[catalogues.rucio]
type = "rucio"
[catalogues.rucio.places.DISK]
site = "{site}"
[catalogues.rucio.rucio]
url = "{rucio.url}"
auth = "userpass"
account = "root"
username = "ddmlab"
password_file = "{rucio.password_file}"
timeout = 600
"""
    )


def _copy(client: Client, files: int) -> float:
    """Seconds until a reading that is asked for now is complete."""
    asked, begun = time.time(), time.perf_counter()
    client.follow_dataset(f"rucio:{NAME}")
    while not any((row.read or 0.0) >= asked for row in client.catalogue("rucio").datasets):
        time.sleep(0.2)
    seconds = time.perf_counter() - begun
    copied = client.dataset(f"rucio:{NAME}").dataset.files
    if copied != files:
        raise RuntimeError(f"{copied:,} of {files:,} files were copied")
    return seconds
