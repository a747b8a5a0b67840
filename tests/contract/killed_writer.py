"""Started by the contract test and killed: says an id only after the commit that holds it.

python killed_writer.py DATABASE FIRST
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from pilotage.store.engine.sqlite import open_writer
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.store.tables import submissions
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer


def main(database: str, first: int) -> None:
    writer = Writer(
        DatabaseAddress.parse(database).open_writer() if "://" in database else open_writer(Path(database))
    )
    writer.start()
    lock = threading.Lock()
    following = iter(range(first, first + 10**9))

    def work() -> None:
        while True:
            with lock:
                number = next(following)

            def request(tx: Transaction, number: int = number) -> None:
                submissions.insert_upload(tx.connection, "owner", str(number), number, 1.0)

            writer.call(request)
            os.write(1, f"{number}\n".encode())

    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
