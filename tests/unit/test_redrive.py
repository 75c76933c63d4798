"""What a dead letter asks for, whatever is in it, and which options of the command exclude each other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from infra.api_client import ApiClient, segment
from infra.cli import main
from infra.fault import CalledWronglyError
from infra.redrive import Letter, read_letter, redrive

EVENT = {"id": "e-1", "source": "torpor", "detail-type": "torpor.message"}
DETAIL = {"workflow_id": "w", "name": "go", "body": {"n": 1}}
TAGGED = {"type": "order", "tags": {"shop": "one"}, "name": "go"}
FAILED = {"version": "1.0", "requestContext": {"condition": "RetriesExhausted"}}


@pytest.mark.parametrize(
    ("body", "letter"),
    [
        ({"workflow_id": "w"}, Letter(workflow_id="w")),
        ({"workflow_id": "w", "alarm_at": 5}, Letter(workflow_id="w")),
        ({**FAILED, "requestPayload": {"workflow_id": "w"}}, Letter(workflow_id="w")),
        (
            {**FAILED, "requestPayload": {**EVENT, "detail": DETAIL}},
            Letter(workflow_id="w", event=DETAIL, key="e-1"),
        ),
        (
            {**FAILED, "requestPayload": {**EVENT, "detail": {**DETAIL, "id": "mine"}}},
            Letter(workflow_id="w", event={**DETAIL, "id": "mine"}, key="mine"),
        ),
        ({**EVENT, "detail-type": "else", "detail": DETAIL}, Letter(workflow_id="w")),
        ({**EVENT, "detail": {"workflow_id": "w"}}, Letter(workflow_id="w")),
        (
            {**FAILED, "requestPayload": {**EVENT, "detail": TAGGED}},
            Letter(workflow_id="", event=TAGGED, key="e-1"),
        ),
        ({**EVENT, "detail": {**TAGGED, "tags": "a"}}, None),
        ({**EVENT, "detail": {}}, None),
        ({"requestPayload": None}, None),
        ([], None),
        (7, None),
    ],
)
def test_a_dead_letter_is_a_wake_or_a_message(body: Any, letter: Letter | None) -> None:
    assert read_letter(json.dumps(body)) == letter


@pytest.mark.parametrize("body", ["", "{", "\x00", "[" * 100_000])
def test_what_is_no_json_is_nothing_of_ours(body: str) -> None:
    assert read_letter(body) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["workflow_id", "detail", "detail-type", "id", "name", "requestPayload", "alarm_at"]), inner
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_read_or_is_nothing(value: Any) -> None:
    found = read_letter(json.dumps(value))
    assert found is None or isinstance(found.workflow_id, str)


@pytest.mark.parametrize(
    "arguments",
    [["recover"], ["recover", "w", "--from-dlq"], ["recover", "--from-dlq", "--endpoint", "http://127.0.0.1:9"]],
)
def test_the_queue_or_an_id_but_not_both(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    told = capsys.readouterr().err
    assert "--from-dlq" in told or "--stack" in told


class Letters:
    """A queue that gives each of ``bodies`` once."""

    def __init__(self, *bodies: Any) -> None:
        self.waiting = [{"Body": json.dumps(body), "ReceiptHandle": str(n)} for n, body in enumerate(bodies)]
        self.shown_again: list[str] = []

    def receive_message(self, **_: Any) -> dict[str, Any]:
        given, self.waiting = self.waiting, []
        return {"Messages": given}

    def change_message_visibility(self, *, ReceiptHandle: str, **_: Any) -> None:  # noqa: N803 - the service's name
        self.shown_again.append(ReceiptHandle)


def test_what_no_address_can_say_is_left_in_the_queue_and_does_not_reach_another() -> None:
    event = {**EVENT, "detail": {**DETAIL, "name": "go?"}}
    queue = Letters({"workflow_id": "order?7"}, event)
    # Nobody listens there: a call would fail.
    api = ApiClient(url="http://127.0.0.1:1", region="eu-west-1", credentials=Credentials("a", "b"))
    done = list(redrive(api, queue, "url"))
    assert [(one.workflow_id, one.is_settled) for one in done] == [("order?7", False), ("w", False)]
    assert all("question mark" in one.what for one in done)
    assert queue.shown_again == ["0", "1"]


def test_a_letter_that_holds_any_text_keeps_none_of_the_others_from_being_done() -> None:
    half = {**EVENT, "detail": {**DETAIL, "id": "\ud800"}}
    queue = Letters({"workflow_id": "\ud800"}, half)
    api = ApiClient(url="http://127.0.0.1:1", region="eu-west-1", credentials=Credentials("a", "b"))
    done = list(redrive(api, queue, "url"))
    assert [one.is_settled for one in done] == [False, False]
    assert all("no valid Unicode" in one.what for one in done)


def test_an_address_says_anything_but_a_question_mark() -> None:
    assert segment("a/b %#") == "a%2Fb%20%25%23"
    with pytest.raises(CalledWronglyError, match="question mark"):
        segment("a?b")
    with pytest.raises(CalledWronglyError, match="no valid Unicode"):
        segment("\ud800")
