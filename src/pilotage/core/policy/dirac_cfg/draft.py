"""The policy under construction: its lines, the origin of each table, and the omissions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pilotage.core.policy import toml
from pilotage.core.policy.dirac_cfg.tree import Option, Section, shortened, unquoted


@dataclass(frozen=True, slots=True)
class Omission:
    """A part of the configuration that is not taken into the policy."""

    path: str
    value: str
    """The value of an option, or the number of options in a section."""
    line: int
    reason: str


@dataclass(slots=True)
class Draft:
    lines: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    """Dotted key of the policy → line of the configuration, for the errors of `parse`."""
    omissions: list[Omission] = field(default_factory=list)
    tables: set[tuple[str, ...]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    """Remarks for the user on parts that were taken."""

    def add_table(self, names: Iterable[str], line: int, values: Iterable[tuple[str, str]] = ()) -> None:
        """Add a table to the policy; `values` are (key, value in TOML syntax)."""
        names = tuple(names)
        self.tables.add(names)
        self.places.setdefault(".".join(names), line)
        self.lines += ["", toml.table(*names), *(f"{name} = {value}" for name, value in values)]

    def add_comment(self, *texts: str) -> None:
        self.lines += ["", *(toml.comment(text) for text in texts)]

    def omit(self, option: Option, value: str, reason: str) -> None:
        """List an option, or one item of its value, as omitted."""
        option.used = True
        self.omissions.append(Omission(option.path, shortened(unquoted(value)), option.line, reason))

    def omit_section(self, section: Section, reason: str) -> None:
        """List a whole section as omitted, in one entry."""
        options = section.count()
        section.mark()
        size = f"{options} option{'' if options == 1 else 's'}"
        self.omissions.append(Omission(section.path, size, section.line, reason))

    def omit_unused(self, root: Section) -> None:
        """List all unused options and sections as omitted."""
        used = _used_sections(root)
        pending = [root]
        while pending:
            section = pending.pop()
            for option in section.options.values():
                if not option.used:
                    self.omit(option, option.value, "unknown option")
            for below in section.sections.values():
                if id(below) in used:
                    pending.append(below)
                else:
                    self.omit_section(below, "a policy has nothing that corresponds to this section")
        self.omissions.sort(key=lambda omission: omission.line)


def _used_sections(root: Section) -> set[int]:
    """The ids of the sections that were used, or that contain a used option or section."""
    touched: set[int] = set()
    for section in reversed(list(root.walk())):
        used = section.used or any(option.used for option in section.options.values())
        if used or any(id(below) in touched for below in section.sections.values()):
            touched.add(id(section))
    return touched


def option_lines(section: Section) -> Iterator[str]:
    """One line per option of the section, for comments."""
    for part in section.walk():
        for option in part.options.values():
            yield f"  {option.path.removeprefix(section.path + '/')} = {option.value}"
