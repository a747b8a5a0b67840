"""Log lines of agents and servers: one JSON object a line."""

from __future__ import annotations

import json
import logging
from typing import IO


class JsonLines(logging.Formatter):
    """at, level, logger, event; then the facts of the record, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_json(stream: IO[str], *, verbose: bool) -> None:
    """Send all log records to `stream`. `verbose`: also single calls."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
