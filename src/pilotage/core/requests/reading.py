"""Reads one table of a specification by its fields, and collects all mistakes with their place."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from pilotage.core.errors import MISTAKES_TOLD, InvalidInput, Mistakes
from pilotage.core.jobs.builder import by_position, combined_error
from pilotage.core.jobs.fields import Field
from pilotage.core.jobs.value_readers import READERS, describe_value
from pilotage.core.requests.fields import REQUIRED, SpecificationField

Path = tuple[str, ...]
Lines = Callable[[Iterable[Path]], Mapping[Path, int]]
"""Finds the lines of paths in the text that was read."""

MAX_CHARS: Final = 1000
MAX_ENTRIES: Final = 10_000
_COMPARED_CHARS: Final = 100
_QUANTITY: Final = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*([A-Za-z]+)\s*\Z")
_DECIMAL: Final = ("b", "kb", "mb", "gb", "tb", "pb")
_BINARY: Final = ("b", "kib", "mib", "gib", "tib", "pib")
_BYTES: Final = {
    **{unit: 1000**power for power, unit in enumerate(_DECIMAL)},
    **{unit: 1024**power for power, unit in enumerate(_BINARY)},
}


class MistakeLog:
    """The mistakes of one document."""

    def __init__(self) -> None:
        self._found: list[tuple[Path, InvalidInput]] = []

    def add(self, path: Path, message: str, hint: str = "") -> None:
        self._found.append((path, InvalidInput(message, hint=hint)))

    def add_error(self, path: Path, error: InvalidInput) -> None:
        """Each error of a parser of a part: `field` is a name below `path`."""
        for single in error.all if isinstance(error, Mistakes) else (error,):
            place = (*path, single.field) if single.field else path
            self.add(place, single.message, single.hint)

    def check(self, lines: Lines) -> None:
        """Raise the mistakes in the order of the text, if there are any."""
        if not self._found:
            return
        places = lines([path for path, _ in self._found])
        errors = [
            InvalidInput(error.message, hint=error.hint, line=places.get(path), field=".".join(path) or None)
            for path, error in self._found
        ]
        raise combined_error(by_position(errors))


class TableReader:
    """The values of one table. A value that cannot be read counts as absent, and its mistake is noted."""

    def __init__(
        self,
        log: MistakeLog,
        path: Path,
        values: Mapping[str, Any],
        fields: Iterable[SpecificationField],
        elsewhere: Mapping[str, str],
    ) -> None:
        """`elsewhere`: the names of other tables' fields, each with the table."""
        self._log = log
        self._path = path
        self._values = values
        self._fields = {field.name: field for field in fields}
        unknown = (str(name) for name in values if name not in self._fields)
        # The hint of each takes time, and no more are told.
        for name in islice(unknown, MISTAKES_TOLD + 1):
            self.mistake(name, f"unknown field {name!r}", self._nearest(name, elsewhere))
        for name, field in self._fields.items():
            if field.default is REQUIRED and name not in values:
                self._log.add(path, f"{'.'.join((*path, name))} is missing", _first_sentence(field.field))

    def mistake(self, name: str, message: str, hint: str = "") -> None:
        self._log.add((*self._path, name), message, hint)

    def has(self, name: str) -> bool:
        return name in self._values

    def path(self, name: str) -> Path:
        return (*self._path, name)

    def value(self, name: str) -> Any:
        """The value of a field, or its default; None for a required one that is absent."""
        field = self._fields[name]
        default = None if field.default is REQUIRED else field.default
        if name not in self._values:
            return default
        try:
            return _read(field.field, self._values[name])
        except InvalidInput as error:
            self.mistake(name, error.message, error.hint)
            return default

    def table(self, name: str, *, true_is_empty: bool = False) -> Mapping[str, Any] | None:
        """The table of a field; None if it is absent or no table."""
        value = self._values.get(name)
        if true_is_empty and isinstance(value, bool):
            return {} if value else None
        if value is None or isinstance(value, Mapping):
            return value
        self.mistake(name, f"{name} must be a table, not {describe_value(value)}")
        return None

    def _nearest(self, name: str, elsewhere: Mapping[str, str]) -> str:
        folded = {known.lower().replace("_", ""): known for known in (*elsewhere, *self._fields)}
        text = name[:_COMPARED_CHARS].lower().replace("_", "")
        here = [key for key, known in folded.items() if known in self._fields]
        near = difflib.get_close_matches(text, here, n=1) or difflib.get_close_matches(text, folded, n=1)
        if not near:
            return f"known here: {', '.join(self._fields)}"
        known = folded[near[0]]
        return f"did you mean {known}?" if known in self._fields else f"{known} belongs to {elsewhere[known]}"


_LINK: Final = re.compile(r"\[([^]]+)\]\([^)]+\)")


def _first_sentence(field: Field) -> str:
    """The meaning in short. In the reference it has links, which an error cannot follow."""
    return _LINK.sub(r"\1", field.meaning.partition(". ")[0].rstrip("."))


_WANTED: Final = {
    "boolean": "true or false",
    "integer": "a whole number",
    "integers": "a whole number, or a list of them",
    "bytes": "a number of bytes, or an amount such as 500 MB or 2 GiB",
    "seconds": "a number of seconds, or a time such as 30 min or 2 h",
    "megabytes": "a number of megabytes, or an amount such as 500 MB or 2 GB",
}


def check_type(field: Field, value: Any) -> None:
    """Refuse a value of another type that a reader of job descriptions would convert.

    JDL writes `"yes"` or `"4"`. TOML, YAML and JSON have types, so such a text is a mistake.
    """
    wanted = _WANTED.get(field.kind, "")
    items = value if isinstance(value, list | tuple) else (value,)
    for item in items:
        if isinstance(item, str):
            is_wrong = bool(wanted) and (field.kind in _PLAIN or item.strip().isdecimal())
            hint = "write it without quotes"
        else:
            is_wrong = field.kind in _TEXTS and isinstance(item, bool | int | float)
            wanted, hint = wanted or "a text", "write it in quotes"
        if is_wrong:
            raise InvalidInput(f"{field.name} must be {wanted}, not {describe_value(item)}", hint=hint)


_PLAIN: Final = ("boolean", "integer", "integers")
_TEXTS: Final = ("text", "choice", "paths", "names")


def _read(field: Field, value: Any) -> Any:
    check_type(field, value)
    if field.kind == "bytes":
        return READERS["integer"](field, amount_of_bytes(value))
    if field.kind == "integers":
        return _integers(field, value)
    if field.kind in ("paths", "names") and value in ("", [], ()):
        raise InvalidInput(f"{field.name} must not be empty", hint="leave it out, or name at least one")
    read = READERS[field.kind](field, value)
    if field.kind == "names" and not read:
        return None if field.name == "sites" else ()
    _check_lengths(field, read)
    return read


def _check_lengths(field: Field, value: Any) -> None:
    entries = value if isinstance(value, tuple) else (value,)
    if len(entries) > MAX_ENTRIES:
        raise InvalidInput(f"{field.name} has {len(entries):,} entries; the limit is {MAX_ENTRIES:,}")
    for text in entries:
        if isinstance(text, str) and len(text) > MAX_CHARS:
            raise InvalidInput(f"{field.name}: a text has more than {MAX_CHARS:,} characters")


def _integers(field: Field, value: Any) -> tuple[int, ...]:
    items = value if isinstance(value, list | tuple) else (value,)
    if len(items) > MAX_ENTRIES:
        raise InvalidInput(f"{field.name} has {len(items):,} entries; the limit is {MAX_ENTRIES:,}")
    return tuple(dict.fromkeys(READERS["integer"](field, item) for item in items))


def amount_of_bytes(value: Any) -> Any:
    """The bytes of a text such as `2 GB` (10^9) or `2 GiB` (2^30); any other value as it is."""
    if not isinstance(value, str) or (match := _QUANTITY.match(value)) is None:
        return value
    unit = _BYTES.get(match[2].lower())
    if unit is None:
        return value
    whole, _, fraction = match[1].partition(".")
    return int(whole) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
