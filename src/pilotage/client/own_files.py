"""Input files of which each job gets its own: found by the values of its row, hashed, and named in the row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pilotage import wire
from pilotage.client.description import LocalDescription
from pilotage.client.inputs import MAX_BYTES, LocalFile, hash_file
from pilotage.client.row_upload import GivenRow, Row, check_rows
from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.core.jobs.parametric import fill_placeholders
from pilotage.core.jobs.per_job_inputs import PerJobFile, column_name, encode_file


@dataclass(frozen=True)
class OwnFiles:
    """The entries of an input sandbox that vary: their places, and the local paths with placeholders."""

    templates: tuple[tuple[int, str], ...]
    names: tuple[str, ...]
    """The names of the parameters that the user gave."""
    count: int | None
    """Rows in all; None: not known, and no `%n` in the paths."""

    @property
    def columns(self) -> list[str]:
        return [column_name(place) for place, _ in self.templates]

    def paths(self, row: Row, index: int) -> list[Path]:
        count = self.count or index + 1
        return [Path(fill_placeholders(text, self.names, row, index, count)) for _, text in self.templates]

    def files(self, row: Row, index: int) -> list[LocalFile]:
        """The hashed files of one row. Raises InvalidInput with the row number."""
        try:
            files = [hash_file(path) for path in self.paths(row, index)]
        except InvalidInput as trouble:
            raise type(trouble)(f"row {index + 1:,}: {trouble.message}", hint=trouble.hint) from trouble
        if sum(file.size for file in files) > MAX_BYTES:
            raise TooLarge(f"row {index + 1:,}: its inputs have more than {MAX_BYTES // 1024**3} GiB")
        return files

    def check(self, rows: Iterable[Row]) -> None:
        """Raise InvalidInput for the first row whose files are not there."""
        if not self.templates:
            return
        for index, row in enumerate(check_rows(rows, self.names)):
            for path in self.paths(row, index):
                if not path.is_file():
                    raise InvalidInput(f"row {index + 1:,}: there is no file {path}")

    def extended(
        self, rows: Iterable[GivenRow], upload: Callable[[Sequence[LocalFile]], None]
    ) -> Iterator[Row]:
        """The rows with the values of their files, which are uploaded for a chunk of rows at a time."""
        counted = enumerate(check_rows(rows, self.names))
        while part := list(islice(counted, wire.submissions.max_rows_per_chunk(len(self.templates)))):
            with_files = [(row, self.files(row, index)) for index, row in part]
            upload([file for _, files in with_files for file in files])
            for row, files in with_files:
                yield [*row, *map(row_value, files)]


def row_value(file: LocalFile) -> str:
    return encode_file(PerJobFile(file.digest, file.size, file.executable))


def find_own_files(
    described: LocalDescription, names: Sequence[str], count: int | None, first: Row | None
) -> OwnFiles:
    """Find the inputs that differ per job. Folders, judged by the `first` row, are excluded."""
    own = OwnFiles(tuple(described.varying(names)), tuple(names), count)
    if first is None or not own.templates:
        return own
    paths = own.paths(first, 0)
    kept = [template for template, path in zip(own.templates, paths, strict=True) if not path.is_dir()]
    return OwnFiles(tuple(kept), own.names, count)
