"""Fill a new Rucio server: an RSE in DIR/rse, and the container data26:numbers with files of numbers there.

    python fill_rucio.py DIR FILES

Run by Rucio's own Python, whose client reads RUCIO_CONFIG. The files have the numbers 0, 1, 2 ... in turn.
"""

import hashlib
import sys
import time
import urllib.request
import zlib
from pathlib import Path

from rucio.client import Client
from rucio.common.config import config_get

SCOPE, CONTAINER, RSE = "data26", "numbers", "EXAMPLE_DISK"
FILES_PER_DATASET = 100
NUMBERS = 1000
"""Numbers in one file."""


def wait_for_server(url):
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/ping", timeout=10).close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the server does not answer")


def write_file(folder, number):
    """A file where the RSE has it, by the digest of its name; its facts for the catalogue."""
    name = f"numbers.{number:04}"
    digest = hashlib.md5(f"{SCOPE}:{name}".encode()).hexdigest()
    path = folder / SCOPE / digest[:2] / digest[2:4] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{number * NUMBERS + value}\n" for value in range(NUMBERS)).encode()
    path.write_bytes(text)
    return {"scope": SCOPE, "name": name, "bytes": len(text), "adler32": f"{zlib.adler32(text):08x}"}


def main():
    folder, files = Path(sys.argv[1]) / "rse", int(sys.argv[2])
    wait_for_server(config_get("client", "rucio_host"))
    client = Client()
    client.add_scope("root", SCOPE)
    client.add_rse(RSE, deterministic=True)
    rank = dict.fromkeys(("read", "write", "delete"), 1)
    client.add_protocol(
        RSE,
        {
            "scheme": "file",
            "hostname": "localhost",
            "port": 0,
            "prefix": str(folder),
            "impl": "rucio.rse.protocols.posix.Default",
            "domains": {"lan": rank, "wan": rank},
        },
    )
    client.set_local_account_limit("root", RSE, -1)
    client.add_container(SCOPE, CONTAINER)
    for first in range(0, files, FILES_PER_DATASET):
        dataset = f"{CONTAINER}.{first // FILES_PER_DATASET}"
        written = [
            write_file(folder, number) for number in range(first, min(files, first + FILES_PER_DATASET))
        ]
        client.add_dataset(SCOPE, dataset)
        client.add_replicas(RSE, written)
        client.attach_dids(SCOPE, dataset, [{"scope": SCOPE, "name": file["name"]} for file in written])
        client.add_replication_rule([{"scope": SCOPE, "name": dataset}], 1, RSE)
        client.close(SCOPE, dataset)
        client.attach_dids(SCOPE, CONTAINER, [{"scope": SCOPE, "name": dataset}])
    client.close(SCOPE, CONTAINER)
    print(f"rucio:{SCOPE}:{CONTAINER} has {files} files")


main()
