"""What the daemon of X-Ray is told, on a real socket: what a sampled invocation did, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine.ids import Ids
from engine.testing import VirtualClock
from handlers.traces import ANNOTATION_CHARACTERS_MAX, NAME_CHARACTERS_MAX, Traces, annotate, mark, parent_of
from tests.xray_daemon import SAMPLED, SEGMENT, TRACE, Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon.listening() as listening:
        yield listening


CLOCK = VirtualClock()


def traces(daemon: str, header: str | None = SAMPLED) -> Traces:
    return Traces(CLOCK, Ids(CLOCK), header=lambda: header, daemon=daemon)


def test_what_is_done_is_told_when_it_is_over(daemon: Daemon) -> None:
    began_ms = CLOCK.now()
    with traces(daemon.address).subsegment("turn", workflow_id="w", ray_id=""):
        CLOCK.advance_to(began_ms + 1500)
        annotate(workflow_type="order", workflow_id="v", request_id="")
        assert daemon.heard_nothing()
    document = daemon.told()
    assert len(document.pop("id")) == 16
    assert document == {
        "name": "turn",
        "type": "subsegment",
        "trace_id": TRACE,
        "parent_id": SEGMENT,
        "start_time": began_ms / 1000,
        "end_time": began_ms / 1000 + 1.5,
        "annotations": {"workflow_id": "v", "workflow_type": "order"},
    }


def test_each_has_an_id_of_its_own(daemon: Daemon) -> None:
    told = traces(daemon.address)
    for _ in range(3):
        with told.subsegment("turn"):
            pass
    ids = {daemon.told()["id"] for _ in range(3)}
    assert len(ids) == 3
    assert all(int(one, 16) for one in ids)


def test_what_fails_is_shown_as_failed_and_goes_on_failing(daemon: Daemon) -> None:
    told = traces(daemon.address)
    with pytest.raises(KeyError), told.subsegment("turn"):
        raise KeyError("x")
    assert daemon.told()["fault"] is True
    with told.subsegment("GET /workflows"):
        mark("error")
    document = daemon.told()
    assert (document["error"], "fault" in document) == (True, False)


def test_names_and_annotations_are_such_as_x_ray_takes(daemon: Daemon) -> None:
    with traces(daemon.address).subsegment("POST /a{b}?" + "ü" * 500, workflow_id="x" * 5000, ray_id='\ud800"\n'):
        pass
    document = daemon.told()
    assert document["name"] == ("POST /a_b__" + "ü" * 500)[:NAME_CHARACTERS_MAX]
    assert document["annotations"] == {"workflow_id": "x" * ANNOTATION_CHARACTERS_MAX, "ray_id": '\ud800"\n'}


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        f"Root={TRACE};Parent={SEGMENT};Sampled=0",
        f"Root={TRACE};Parent={SEGMENT}",
        f"Root={TRACE};Sampled=1",
        f"Parent={SEGMENT};Sampled=1",
        f"Root={TRACE}x;Parent={SEGMENT};Sampled=1;",
        "Sampled=1;;=;Root",
    ],
)
def test_nothing_is_told_of_what_is_not_sampled(daemon: Daemon, header: str | None) -> None:
    with traces(daemon.address, header).subsegment("turn"):
        annotate(workflow_id="w")
    annotate(workflow_id="w")
    mark("fault")
    with traces(daemon.address).subsegment("after"):
        pass
    assert daemon.told()["name"] == "after"
    assert daemon.heard_nothing()


def test_a_header_may_say_more() -> None:
    found = parent_of(f"Self=1-2-3; Root={TRACE} ;Parent={SEGMENT};Sampled=1;Lineage=25:1ab2c3d4:0")
    assert found is not None
    assert (found.trace_id, found.segment_id) == (TRACE, SEGMENT)


def test_of_two_addresses_the_one_for_datagrams_is_taken(daemon: Daemon) -> None:
    with traces(f"tcp:127.0.0.1:9 udp:{daemon.address}").subsegment("turn"):
        pass
    assert daemon.told()["name"] == "turn"


@pytest.mark.parametrize("address", ["", "localhost", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:9", "300.1.1.1:x"])
def test_a_daemon_that_is_not_there_disturbs_nothing(address: str) -> None:
    done = []
    for _ in range(3):
        with traces(address).subsegment("turn", workflow_id="w" * 1000):
            done.append(1)
    assert len(done) == 3


def test_one_within_another_has_its_own_annotations(daemon: Daemon) -> None:
    told = traces(daemon.address)
    with told.subsegment("outer", workflow_id="a"):
        with told.subsegment("inner", workflow_id="b"):
            annotate(ray_id="r")
        annotate(request_id="q")
    inner, outer = daemon.told(), daemon.told()
    assert inner["annotations"] == {"workflow_id": "b", "ray_id": "r"}
    assert outer["annotations"] == {"workflow_id": "a", "request_id": "q"}
