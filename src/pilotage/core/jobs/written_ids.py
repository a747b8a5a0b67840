"""Job ids as people write them: "12", "12-40", "12,15"."""

from __future__ import annotations

from collections.abc import Iterable

from pilotage.core.errors import InvalidInput


def parse_written_ids(words: Iterable[str], most: int) -> list[int]:
    """The ids in their order, each once. Raises InvalidInput for more than `most`."""
    ids: dict[int, None] = {}
    for word in words:
        for part in word.replace(" ", "").split(","):
            if not part:
                continue
            ids.update(dict.fromkeys(_parse_range(part, most)))
            if len(ids) > most:
                raise InvalidInput(
                    f"more than {most:,} ids", hint="name them by a submission or another condition"
                )
    return list(ids)


def _parse_range(part: str, most: int) -> range:
    first, dash, last = part.partition("-")
    if not (is_id(first) and (is_id(last) or not dash)):
        hint = "write ids as 12, 12-40 or 12,15"
        if part.startswith("s:"):
            hint = "where jobs are named by ids, `-s 12` names a submission"
        raise InvalidInput(f"{part[:40]!r} is not a job id", hint=hint)
    low, high = int(first), int(last or first)
    if high < low:
        raise InvalidInput(f"the range {part} is empty", hint=f"did you mean {high}-{low}?")
    if high - low >= most:
        raise InvalidInput(f"the range {part} has more than {most:,} ids")
    return range(low, high + 1)


def is_id(text: str) -> bool:
    """Whether a word is a single id."""
    return text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0
