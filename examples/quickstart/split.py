"""Before the jobs of the quickstart: deal the packages of the standard library into chunks of about equal size.

    python split.py COUNT FILE [--modules]

Writes a line for each job to FILE: its packages, separated by commas. Prints where the standard library is.
With --modules, single files are dealt instead of packages, for many more jobs.
"""

import sys
import sysconfig
from pathlib import Path

SKIPPED = {"test", "site-packages", "dist-packages", "__pycache__", "idlelib", "turtledemo", "lib2to3"}


def size_of(path: Path) -> int:
    """Bytes of Python source below `path`."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*.py") if "test" not in file.parts)


def packages(stdlib: Path) -> dict[str, int]:
    """Size by name, of all packages and single modules; the standard library's own tests are left out."""
    sizes = {}
    for entry in sorted(stdlib.iterdir()):
        is_package = entry.is_dir() and (entry / "__init__.py").exists()
        if entry.name not in SKIPPED and (is_package or entry.suffix == ".py"):
            sizes[entry.name] = size_of(entry)
    return sizes


def modules(stdlib: Path) -> dict[str, int]:
    """Size of each file of Python source by its path, without the standard library's own tests."""
    sizes = {}
    for file in sorted(stdlib.rglob("*.py")):
        path = file.relative_to(stdlib)
        if not SKIPPED & set(path.parts) and "tests" not in path.parts and "," not in str(path):
            sizes[str(path)] = file.stat().st_size
    return sizes


def deal(sizes: dict[str, int], count: int) -> list[list[str]]:
    """The largest first, each to the chunk that is smallest so far."""
    chunks: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(count, len(sizes)))]
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        smallest = min(range(len(chunks)), key=lambda index: chunks[index][0])
        total, names = chunks[smallest]
        chunks[smallest] = (total + size, [*names, name])
    return [names for _, names in chunks]


def main() -> None:
    stdlib = Path(sysconfig.get_path("stdlib"))
    count, file = int(sys.argv[1]), Path(sys.argv[2])
    sizes = modules(stdlib) if "--modules" in sys.argv[3:] else packages(stdlib)
    chunks = deal(sizes, count)
    file.write_text("".join(",".join(names) + "\n" for names in chunks), encoding="utf-8")
    print(stdlib)


if __name__ == "__main__":
    main()
