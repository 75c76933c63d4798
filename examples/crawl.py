"""A crawl: one workflow that starts a child for every page it finds, at most so many of them at once."""

from __future__ import annotations

from dataclasses import dataclass

from engine import ActivityContext, Context, NonRetryable, WorkflowFailedError, activity, workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where to begin. Our pretended site has ``pages`` pages, page n linking to 3n+1, 3n+2 and 3n+3.

    ``window`` pages are read at once; those in ``broken`` are linked to and do not exist.
    """

    pages: int
    window: int
    broken: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One page to read."""

    site: Site
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What was read: ``links`` are the numbers of pages."""

    number: int
    words: int
    links: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole site; ``broken`` are pages that could not be read."""

    pages: int
    words: int
    broken: list[int]


class GoneError(NonRetryable):
    """There is no such page, and asking again does not make one."""


@workflow("crawl")
async def crawl(ctx: Context, site: Site) -> Report:
    """Read all pages of a site, those that are found on the way too, each by a workflow of its own."""
    found, broken = [0], []
    pages = words = depth = 0
    seen = set(found)
    while found:
        read = await ctx.map(
            f"depth-{depth}", [Request(site=site, number=n) for n in found], one, concurrency=site.window
        )
        broken += [number for number, page in zip(found, read, strict=True) if page is None]
        there = [page for page in read if page is not None]
        pages, words, depth = pages + len(there), words + sum(page.words for page in there), depth + 1
        linked = dict.fromkeys(link for page in there for link in page.links)
        found = [link for link in linked if link not in seen]
        seen.update(found)
    return Report(pages=pages, words=words, broken=broken)


@workflow("read_page")
async def read_page(ctx: Context, request: Request) -> Page:
    """Fetch a page; what takes long, fails or must be polite to a server is the child's own affair."""
    return await ctx.activity(fetch, request)


async def one(ctx: Context, request: Request) -> Page | None:
    """One page, or None where it cannot be read: a broken link is no reason to give up the crawl."""
    child = await ctx.dispatch(read_page, request)
    try:
        return await ctx.output(child)
    except (GoneError, WorkflowFailedError):
        return None


@activity
async def fetch(ctx: ActivityContext, request: Request) -> Page:
    """Read a page from the pretended site, whose server drops every tenth first call."""
    number, site = request.number, request.site
    if number in site.broken:
        raise GoneError(f"page {number} is gone")
    if number % 10 == 0 and number and ctx.attempt == 1:
        raise ConnectionError(f"no answer for page {number}")
    links = [link for link in (3 * number + 1, 3 * number + 2, 3 * number + 3) if link < site.pages]
    return Page(number=number, words=100 + number % 7, links=links)
