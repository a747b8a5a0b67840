"""Pages: data sets, and one data set with its sites and blocks."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from pilotage.server.web import formats
from pilotage.server.web.charts import Chart, ChartBar, ChartPart
from pilotage.server.web.page import PageRouter
from pilotage.server.web.visit import Visit
from pilotage.wire.catalogues import LIST_CATALOGUES
from pilotage.wire.datasets import (
    LIST_BLOCKS,
    LIST_DATASETS,
    REPORT_DATASET,
    BlocksQuery,
    DataSetQuery,
    DataSetReport,
    DataSetSite,
    DataSetsQuery,
)

pages = PageRouter(menu="Data sets", order=7)

ROWS = 100


@pages.get("/datasets")
async def show(visit: Visit) -> Response:
    """The data sets whose names have a text in them, and the outside catalogues."""
    given = {name: visit.query.get(name, "").strip() for name in ("contains", "owner")}
    asked = DataSetsQuery(visit.number("after"), ROWS, given["contains"], given["owner"])
    page = await visit.ask(LIST_DATASETS, asked)
    return await visit.render(
        "datasets.html",
        given=given,
        datasets=page.datasets,
        next=page.next,
        catalogues=await visit.ask(LIST_CATALOGUES),
    )


@pages.get("/datasets/one")
async def show_dataset(visit: Visit) -> Response:
    """One data set: its totals, the part of it at each site, and its blocks."""
    name = visit.query.get("name", "")
    report = await visit.ask(REPORT_DATASET, DataSetQuery(name))
    blocks = await visit.ask(LIST_BLOCKS, BlocksQuery(name, visit.number("after"), ROWS))
    return await visit.render_charts(
        "dataset.html",
        places_chart(report.sites),
        size_chart(report.sites),
        dataset=report.dataset,
        report=report,
        blocks=blocks.blocks,
        next=blocks.next,
        elsewhere=elsewhere(report),
    )


def places_chart(sites: Sequence[DataSetSite]) -> Chart:
    """The blocks at each site. A block at two sites counts at both."""
    bars = [ChartBar(site.site, [site.blocks]) for site in sites]
    return Chart("blocks", "Blocks by site", "Site", "block", [ChartPart("blocks", "busy")], bars)


def size_chart(sites: Sequence[DataSetSite]) -> Chart:
    """The bytes at each site."""
    bars = [ChartBar(site.site, [site.size]) for site in sites]
    return Chart(
        "bytes",
        "Size by site",
        "Site",
        "",
        [ChartPart("bytes", "teal")],
        bars,
        amount=lambda number: formats.size(int(number)),
    )


def elsewhere(report: DataSetReport) -> list[str]:
    """Sentences about blocks that are at no known site."""
    places = ((report.unknown, "at a place that is not known"), (report.nowhere, "known to be nowhere"))
    return [
        f"{number:,} of {report.dataset.blocks:,} blocks are {where}." for number, where in places if number
    ]
