"""Tells a document of GOCDB and one of CRIC apart."""

from __future__ import annotations

from collections.abc import Mapping

from pilotage.core.errors import InvalidInput
from pilotage.core.topology.cric import read_cric
from pilotage.core.topology.gocdb import read_gocdb
from pilotage.core.topology.model import Topology


def read_documents(texts: Mapping[str, str]) -> Topology:
    """The content of documents by their file names. Raises InvalidInput with the file of one that cannot be read."""
    topology = Topology()
    for name, text in texts.items():
        try:
            begin = text.lstrip("\ufeff \t\r\n")[:1]
            if begin not in ("<", "{", "["):
                raise InvalidInput("the document is neither XML of GOCDB nor JSON of CRIC")
            (read_gocdb if begin == "<" else read_cric)(text.lstrip("\ufeff \t\r\n"), topology)
        except InvalidInput as trouble:
            trouble.file = name
            raise
    return topology
