"""`pilotage dataset add`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import LONG_PATIENCE, Session, connected
from pilotage.core.datasets.arrangement import BLOCK_SIZE
from pilotage.core.datasets.facts import CHECKSUMS, BlockEntry, Replica, check_replica
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural

NameArgument = Annotated[str, CommandArgument("Name of the data set", "NAME")]
MAX_BLOCK_SIZE = 100_000


@connected
def add(
    session: Session,
    name: NameArgument,
    source: Annotated[
        Path, CommandArgument("A folder with the files, or a manifest that lists them", "PATH")
    ],
    site: Annotated[
        list[str] | None,
        CommandOption(
            "Where the files are; default: here, at the path given. May be repeated", "SITE[=PREFIX]"
        ),
    ] = None,
    match: Annotated[
        list[str] | None, CommandOption("Only files of a folder that fit; may be repeated", "PATTERN")
    ] = None,
    block_size: Annotated[int, CommandOption("Most files of a block", "N")] = BLOCK_SIZE,
    block_depth: Annotated[int, CommandOption("Parts of a folder that name a block; 0: all", "N")] = 0,
    events_per_file: Annotated[int, CommandOption("Events of files whose number is not given", "N")] = 0,
    checksum: Annotated[str, CommandOption("Compute checksums, such as adler32 or sha256", "NAME")] = "",
    group: Annotated[
        str, CommandOption("Group that owns a new data set with you", "GROUP", names="--group -g")
    ] = "",
    close: Annotated[bool, CommandOption("Close the data set: no more files will come")] = False,
) -> None:
    """Register files as a data set: each folder is a block. Adding again adds new files only.

    The files are not copied: they stay at their sites.
    """
    from pilotage.client.datasets import FileOptions

    _check_numbers(block_size, block_depth, events_per_file, checksum)
    options = FileOptions(tuple(match or ()), events_per_file, checksum, block_size, block_depth)
    blocks, closes = _blocks(name, source, site or [], options)
    count = sum(len(block.files) for block in blocks)
    with (
        session.client(patience=LONG_PATIENCE) as client,
        session.screen.progress(f"add to {name}") as advance,
    ):
        client.create_dataset(name, group=group)
        added = client.add_to_dataset(
            name, blocks, lambda sent: advance(sent, count, f"{sent:,} of {plural(count, 'file')}")
        )
        if close or closes:
            client.close_dataset(name)
    for warning in added.warnings:
        session.screen.note(f"warning: {warning}")
    session.screen.json(added)
    known = f", {added.known:,} were there" if added.known else ""
    session.screen.line(
        f"{name}: added {plural(added.files, 'file')} in {plural(added.closed, 'block')}{known}"
    )


def _check_numbers(block_size: int, block_depth: int, events_per_file: int, checksum: str) -> None:
    if not 1 <= block_size <= MAX_BLOCK_SIZE:
        raise InvalidInput(f"--block-size is a number from 1 to {MAX_BLOCK_SIZE:,}")
    if block_depth < 0 or events_per_file < 0:
        raise InvalidInput("--block-depth and --events-per-file must not be negative")
    if checksum and checksum not in CHECKSUMS:
        raise InvalidInput(f"unknown checksum {checksum!r}", hint=f"known: {', '.join(CHECKSUMS)}")


def _blocks(name: str, source: Path, sites: Sequence[str], options: object) -> tuple[list[BlockEntry], bool]:
    """The blocks to register, and whether the manifest closes the data set."""
    from pilotage.client.datasets import FileOptions, blocks_of_folder, blocks_of_manifest, read_manifest

    assert isinstance(options, FileOptions)
    path = source.expanduser().absolute()
    if path.is_dir():
        return blocks_of_folder(path, parse_places(sites or [""], str(path)), options), False
    if options.patterns or options.checksum:
        raise InvalidInput("--match and --checksum go with a folder, not with a manifest")
    manifest = read_manifest(path)
    if manifest.name and manifest.name != name:
        raise InvalidInput(
            f"{source} is the manifest of {manifest.name}, not of {name}",
            hint=f"pilotage dataset add {manifest.name} {source}",
        )
    prefix = str(path.parent) if manifest.prefix is None else manifest.prefix
    if not sites and not manifest.replicas:
        sites = [""]
    places = parse_places(sites, prefix)
    return blocks_of_manifest(manifest, places, options), manifest.closed


def parse_places(sites: Sequence[str], prefix: str) -> list[Replica]:
    """The places of SITE[=PREFIX]; `prefix` is used where none is given."""
    places = []
    for text in sites:
        site, _, given = text.partition("=")
        place = check_replica(site or "here", given or prefix or "/")
        places.append(place._replace(site=site))
    return places
