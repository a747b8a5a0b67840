"""The tables `catalogues.NAME` of the policy: catalogues of data sets outside of this server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, cast

import msgspec

from pilotage.core.plug_ins import refuse
from pilotage.core.policy.catalogue_options import CatalogueOptions
from pilotage.core.policy.catalogue_types import CATALOGUE_TYPES
from pilotage.core.policy.table import PolicyTable
from pilotage.core.setting import YEAR, Setting

CatalogueOptionsType = TypeVar("CatalogueOptionsType", bound=CatalogueOptions)
CatalogueOptionsClass = type[CatalogueOptionsType]
"""A name for the signatures of a class that has a field `type`."""

if TYPE_CHECKING:
    CatalogueType = str
    """The name of the adapter."""
    _TYPES = ""


class CataloguePlace(PolicyTable, frozen=True):
    """Storage of an outside catalogue, and the site of the policy that reads it."""

    site: Annotated[str, Setting("the site whose jobs read its files; `*`: every site")]
    prefix: Annotated[
        str,
        Setting(
            "folder or URL below which jobs of the site find the files, such as /store; empty: what the catalogue"
            " tells"
        ),
    ] = ""


class _CatalogueSection(PolicyTable, frozen=True):
    """The table `catalogues.NAME`. It has one more field for each type: the table of its options."""

    type: Annotated[CatalogueType, Setting(f"the kind of catalogue: {_TYPES}")]
    period: Annotated[
        float,
        Setting("seconds after which a data set that an unfinished request reads is read again", 1, YEAR),
    ] = 600.0
    retry: Annotated[
        float, Setting("seconds between two tries while the catalogue does not answer", 1, YEAR)
    ] = 60.0
    open_datasets: Annotated[
        Literal["wait", "take"],
        Setting(
            "wait: data sets that are open there become work when they are closed; take: their files become work with"
            " each reading"
        ),
    ] = "wait"
    places: Annotated[
        dict[str, CataloguePlace],
        Setting("the storage of the catalogue by name (an RSE of Rucio), each with its site"),
    ] = msgspec.field(default_factory=dict)

    def catalogue_options(self) -> CatalogueOptions:
        """The options of its own type."""
        return cast(CatalogueOptions, getattr(self, self.type))

    def options_as(self, kind: CatalogueOptionsClass[CatalogueOptionsType]) -> CatalogueOptionsType:
        """The options of its own type, for the adapter that knows their class."""
        options = self.catalogue_options()
        assert isinstance(options, kind), f"the options of {self.type} are {options.__class__.__name__}"
        return options


if TYPE_CHECKING:

    class OutsideCatalogue(_CatalogueSection, frozen=True):
        """An outside catalogue as the policy has it."""

else:
    refuse("catalogue_types", CATALOGUE_TYPES, _CatalogueSection.__struct_fields__)
    # The annotations above are read at the first use of the classes, and name these.
    CatalogueType = Literal[tuple(CATALOGUE_TYPES)]
    _TYPES = ", ".join(f"{name} ({options.meaning})" for name, options in CATALOGUE_TYPES.items())
    OutsideCatalogue = msgspec.defstruct(
        "OutsideCatalogue",
        [(name, options, options()) for name, options in CATALOGUE_TYPES.items()],
        bases=(_CatalogueSection,),
        module=__name__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
