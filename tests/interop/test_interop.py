"""Two engines, one history: whatever either wrote at any commit, the other continues to the same end.

How: every case runs once on each engine, from the start, on a clock that jumps. After each write the whole store and
the inbox are kept. From each of these moments the *other* engine continues; it must end as the case says, and no step
whose result was stored may run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from engine import keys, values
from engine.history.documents import Document, encode
from tests.interop import ours
from tests.interop.cases import CASES, START_MS, Case
from tests.interop.outcome import Outcome, Snapshot, done, shape, state

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.conftest import Reference


def start_of(case: Case) -> Snapshot:
    return Snapshot(kv=[], messages=case.sent, now=START_MS)


def ask(reference: Reference, workflow: str, given: Any, start: Snapshot) -> Outcome:
    answer = reference.ask(
        workflow=workflow,
        id=ours.ID,
        input=given,
        kv=start.kv,
        messages=msgspec.to_builtins(start.messages),
        now=start.now,
        mode="drive",
    )
    return msgspec.convert({"result": None, "threw": None, **answer}, Outcome)


def check(case: Case, found: Outcome, recorded: set[str], when: str) -> None:
    assert (found.result, found.threw) == (case.result, case.threw), when
    assert not recorded.intersection(found.ran), f"{when}: ran again what was recorded"


each_case = pytest.mark.parametrize("case", CASES, ids=[case.workflow for case in CASES])


@each_case
async def test_both_do_the_same_and_record_the_same(case: Case, reference: Reference) -> None:
    mine = await ours.run(case.workflow, case.given, start_of(case))
    theirs = ask(reference, case.workflow, case.given, start_of(case))

    check(case, mine, set(), "ours, alone")
    check(case, theirs, set(), "the reference, alone")
    assert sorted(mine.ran) == sorted(theirs.ran)
    assert shape(mine.kv) == shape(theirs.kv)
    assert state(mine.kv) == state(theirs.kv) == ("failed" if case.threw else "completed")


@each_case
async def test_the_reference_continues_what_ours_wrote(case: Case, reference: Reference) -> None:
    mine = await ours.run(case.workflow, case.given, start_of(case))

    assert any(done(snapshot.kv) for snapshot in mine.snapshots)
    for number, snapshot in enumerate(mine.snapshots, 1):
        found = ask(reference, case.workflow, {"another": "input"}, snapshot)
        check(case, found, done(snapshot.kv), f"after our commit {number} of {len(mine.snapshots)}")


@each_case
async def test_ours_continues_what_the_reference_wrote(case: Case, reference: Reference) -> None:
    theirs = ask(reference, case.workflow, case.given, start_of(case))

    assert any(done(snapshot.kv) for snapshot in theirs.snapshots)
    for number, snapshot in enumerate(theirs.snapshots, 1):
        found = await ours.run(case.workflow, {"another": "input"}, snapshot)
        check(case, found, done(snapshot.kv), f"after the reference's write {number} of {len(theirs.snapshots)}")


@pytest.mark.parametrize("case", [case for case in CASES if case.workflow in ("steps", "loop", "nested")])
async def test_the_reference_leaves_our_documents_alone(case: Case, reference: Reference) -> None:
    version = encode(Document(1, values.encode({"count": 1}))).hex()
    mine = await ours.run(case.workflow, case.given, start_of(case))
    for number, snapshot in enumerate(mine.snapshots, 1):
        entries = [bytes.fromhex(key) for key, _ in snapshot.kv if bytes.fromhex(key).startswith(keys.HISTORY_PREFIX)]
        documents = [(keys.document_key(key).hex(), version) for key in entries]
        beside = msgspec.structs.replace(snapshot, kv=sorted([*map(tuple, snapshot.kv), *documents]))
        found = ask(reference, case.workflow, {"another": "input"}, beside)
        check(case, found, done(snapshot.kv), f"after our commit {number}")
        assert set(documents) <= {(key, value) for key, value in found.kv}


async def test_a_new_deployment_goes_on_the_same_way_on_both(reference: Reference) -> None:
    """``before`` is the old code, ``after`` the new: an added version gate, two operations removed."""
    given = {"n": 7}
    start = Snapshot(kv=[], messages=[], now=START_MS)
    writers: list[Callable[[], Any]] = [
        lambda: ours.run("before", given, start),
        lambda: ask(reference, "before", given, start),
    ]
    for write in writers:
        written = write()
        outcome: Outcome = await written if hasattr(written, "__await__") else written
        going = [snapshot for snapshot in outcome.snapshots if state(snapshot.kv) != "completed"]
        assert len(going) >= 3
        for snapshot in going:
            mine = await ours.run("after", given, snapshot)
            theirs = ask(reference, "after", given, snapshot)
            assert mine.result == theirs.result
            assert mine.result in {"7, version 1", "7, version 2", 8}
            assert not done(snapshot.kv).intersection([*mine.ran, *theirs.ran])
