"""The forward table of an adapter: its rules by default, and the native options that it knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pilotage.core.errors import InvalidInput
from pilotage.core.forwarding.rules import (
    ATTRIBUTE,
    AttributeRule,
    ComplexRule,
    FeatureRule,
    OptionRule,
    Rule,
    WallRule,
    parse_rule,
)
from pilotage.core.glue.schema import BY_NAME, FixedBy, nearest_name


class HostSelection(StrEnum):
    """How a batch system takes the names of hosts."""

    NONE = ""
    EXCLUDE = "exclude"
    """It takes the hosts that the job may not use."""
    QUEUES = "queues"
    """It takes hosts that the job may use, as HOST or QUEUE@HOST. Names of queues from elsewhere extend the list."""
    HOSTS = "hosts"
    """It takes the hosts that the job may use, with blanks between them."""


class FlagSyntax(StrEnum):
    """How a batch system writes the restrictions of one flag."""

    LISTS = "lists"
    """Features as FEATURE&(FEATURE|FEATURE), requests as NAME=VALUE,NAME=VALUE."""
    CHUNK = "chunk"
    """Requests as NAME=VALUE:NAME=VALUE. A text must be equal, a number at least as much."""
    PROPERTIES = "properties"
    """Features as FEATURE:FEATURE; a host must have all of them."""
    SELECTION = "selection"
    """One expression over features and values, such as select[(FEATURE||FEATURE)&&NAME>=VALUE]."""


@dataclass(frozen=True, slots=True)
class NativeOption:
    """An option that restricts the hosts of a job by a lower bound, and allocates nothing."""

    meaning: str
    unit: str = ""
    """Follows the number, such as M."""


_OF_CHUNKS = frozenset({("==", "string"), *(("<=", kind) for kind in ("integer", "real", "megabytes"))})
"""The relations and types of the resources of a chunk."""


@dataclass(frozen=True, slots=True)
class ForwardTable:
    """The native terms of one batch system."""

    rules: Mapping[str, str] = field(default_factory=dict)
    """Attribute → text of its rule."""
    syntax: FlagSyntax = FlagSyntax.LISTS
    feature_option: str = ""
    """The option for features of hosts, such as --constraint; empty: it has none."""
    complex_option: str = ""
    """The option for requests of complexes, such as -l; empty: it has none."""
    options: Mapping[str, NativeOption] = field(default_factory=dict)
    expression_option: str = ""
    """The option for an expression over attributes of machines, such as --requirements; empty: it has none."""
    has_wall: bool = False
    """The pilot's time limit is passed to the batch system, so that only parts that allow it are used."""
    selection: HostSelection = HostSelection.NONE
    selection_option: str = ""
    """The option for names of hosts."""
    hook_options: Mapping[str, str] = field(default_factory=dict)
    """Option → pattern of the values that the site's hook may give it."""

    @property
    def is_empty(self) -> bool:
        """Nothing can be forwarded: all requirements are left to the match."""
        return not (
            self.feature_option
            or self.complex_option
            or self.expression_option
            or self.options
            or self.selection
        )

    def knows(self, rule: Rule) -> bool:
        """Whether the batch system has the native term of a rule."""
        match rule:
            case FeatureRule():
                return bool(self.feature_option)
            case ComplexRule(relation=relation, type=type_):
                if self.syntax is FlagSyntax.CHUNK and (relation, type_) not in _OF_CHUNKS:
                    return False
                return bool(self.complex_option)
            case OptionRule(option=option):
                return option in self.options
            case AttributeRule():
                return bool(self.expression_option)
            case WallRule():
                return self.has_wall

    def with_rules(self, own: Mapping[str, str]) -> dict[str, Rule]:
        """The rules of a CE, by attribute: rules of the table, overridden by `own`. Names are compared without case.

        `own` was checked by `mistakes`.
        """
        replaced = {name.lower() for name in own}
        texts = {**{name: text for name, text in self.rules.items() if name.lower() not in replaced}, **own}
        return {name: rule for name, text in texts.items() if (rule := parse_rule(text)) is not None}

    def mistakes(self, own: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        """Attributes of `own` with rules that cannot be used, each with the reason and a hint."""
        seen: set[str] = set()
        for name, text in own.items():
            if not ATTRIBUTE.fullmatch(name):
                yield name, f"{name!r} is no name of an attribute", "letters, digits and `_`"
                continue
            if name.lower() in seen:
                yield name, f"{name} has two rules", "names of attributes have no case"
            seen.add(name.lower())
            try:
                rule = parse_rule(text)
            except InvalidInput as error:
                yield name, error.message, error.hint
                continue
            known = BY_NAME.get(name.lower())
            if rule is not None and not self.knows(rule):
                yield name, f"the batch system has no flag for {text!r}", self._known_forms()
            elif near := nearest_name(name):
                yield name, f"the GLUE schema has no attribute {name}", f"did you mean {near}?"
            elif (
                rule is not None and not isinstance(rule, WallRule) and known and known.fixed_by is FixedBy.CE
            ):
                yield name, f"{name} is no attribute of hosts", "the CE's own facts decide it"

    def _known_forms(self) -> str:
        forms = [
            *(["feature NAME_{}"] if self.feature_option else []),
            *(["complex NAME RELATION [TYPE]"] if self.complex_option else []),
            *(f"option {name}" for name in self.options),
            *(["attribute NAME"] if self.expression_option else []),
            *(["wall"] if self.has_wall else []),
            "none",
        ]
        return f"its rules: {', '.join(forms)}"
