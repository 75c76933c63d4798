"""The crawl: every page once, so many at a time, and broken links told."""

from __future__ import annotations

from engine.result import WorkflowResult
from engine.testing import MemoryWorld
from examples.crawl import Report, Site, crawl


async def report_of(site: Site) -> tuple[Report, MemoryWorld]:
    world = MemoryWorld()
    world.start("site", crawl, site)
    await world.drive()
    result = world.results["site"]
    assert isinstance(result, WorkflowResult), result
    assert isinstance(result.output, Report)
    return result.output, world


async def test_two_hundred_pages_are_read_once_each_though_some_need_a_second_try() -> None:
    report, world = await report_of(Site(pages=200, window=20, broken=[]))
    assert report == Report(pages=200, words=sum(100 + number % 7 for number in range(200)), broken=[])
    assert len(world.drivers) == 1 + 200


async def test_what_hangs_on_a_broken_link_is_not_reached_and_the_link_is_told() -> None:
    report, world = await report_of(Site(pages=40, window=3, broken=[2, 13]))
    below = {2, 7, 8, 9, 22, 23, 24, 25, 26, 27, 28, 29, 30, 13}
    assert report.broken == [2, 13]
    assert report.pages == 40 - len(below)
    assert len(world.drivers) == 1 + report.pages + len(report.broken)
