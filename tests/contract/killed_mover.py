"""Started by the contract test and killed: moves old jobs, brings some back, forgets some; a line after each commit.

python killed_mover.py DATABASE SEED
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

from pilotage.store.engine.sqlite import open_writer
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.store.tables import history, retention


def main(database: str, seed: int) -> None:
    connection = (
        DatabaseAddress.parse(database).open_writer() if "://" in database else open_writer(Path(database))
    )
    connection.renew()
    rng = Random(seed)
    while True:
        connection.begin()
        choice = rng.random()
        if choice < 0.6:
            history.archive(connection, 1e9, rng.randint(1, 40))
        elif choice < 0.9:
            history.restore(connection, rng.sample(range(1, 1001), 20))
        else:
            gone = history.delete_expired(connection, rng.uniform(0, 100), 1)
            retention.schedule_removal(connection, "jobs", gone)
        connection.commit()
        os.write(1, b"committed\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
