"""Results as plain data, for callers who do not trust the nodes: nothing in them runs code here."""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

from pilotage.core.errors import PilotageError


class CallRaised(PilotageError):
    """The function of a call raised an exception, and results are plain data: the text names its class."""


class _PlainReader(pickle.Unpickler):
    """Reads texts, bytes, numbers, lists, tuples, dictionaries, sets, and arrays that NumPy reads without pickle."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module[:100]}.{name[:100]} is no plain data")

    def persistent_load(self, given: object) -> Any:
        import numpy

        match given:
            case (bool(scalar), bytes(content)):
                array = numpy.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
                return array[()] if scalar else array
        raise pickle.UnpicklingError("an array that is none")


def read_plain(body: bytes) -> Any:
    """The value of a frame; raises an error for everything that is no plain data."""
    return _PlainReader(io.BytesIO(body)).load()
