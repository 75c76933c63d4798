"""The example's orders on the deployed template, from the first request to the last."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.e2e.probe import until

if TYPE_CHECKING:
    from tests.e2e.conftest import Make

ORDER: dict[str, Any] = {
    "customer": "Ada",
    "currency": "EUR",
    "items": [{"name": "pen", "quantity": 3, "price_cents": 250}],
    "payment": "prompt",
}


def start(make: Make, workflow_id: str, **differing: Any) -> Any:
    order = make("order", workflow_id)
    body = json.dumps({"id": workflow_id, "input": {**ORDER, **differing}}).encode()
    reply = order.stack.api.request("POST", "/workflows/order", body=body)
    assert reply.status == 201, reply.body
    started = reply.json()
    origin = {name: started[name] for name in ("ray_id", "request_id")}
    assert started == {"id": workflow_id, "type": "order", **origin, "created": True}
    assert all(origin.values())
    return order


def test_an_order_is_shipped(probe: Make) -> None:
    order = start(probe, "shipped-order", payment="flaky")
    order.wait_for("shipped")
    assert order.known()["state"] == "sleeping"
    assert order.call("GET", "/output").status == 202
    assert order.send("shipped", {"parcel": "P7"}).status == 202
    assert order.output() == {
        "outcome": "shipped",
        "total_cents": 750,
        "payment_id": "payment-shipped-order",
        "parcel": "P7",
    }
    entries = {entry["location"]: entry for entry in order.call("GET", "/history").json()["entries"]}
    assert entries["charge"]["attempts"] == 3
    assert {entry["status"] for entry in entries.values() if entry["kind"] == "step"} == {"completed"}
    assert [record["attempt"] for record in order.records("charging")] == [1, 2, 3]


def test_a_message_that_comes_early_is_kept(probe: Make) -> None:
    order = start(probe, "early-order")
    assert order.send("shipped", {"parcel": "P8"}).status == 202
    assert order.output()["parcel"] == "P8"


def test_an_order_that_nobody_ships_is_refunded(probe: Make) -> None:
    order = start(probe, "late-order", patience_s=2)
    assert order.output()["outcome"] == "refunded"


def test_a_refused_order_fails_with_its_error(probe: Make) -> None:
    order = start(probe, "refused-order", payment="refused")
    told = order.ending()
    assert told["state"] == "failed"
    assert told["error"]["name"] == "PaymentRefusedError"
    assert told["error"]["message"] == "the bank refuses the card"
    assert len(order.records("charging")) == 1


def test_every_run_tells_the_log_what_it_cost(probe: Make) -> None:
    order = start(probe, "told-order")
    order.send("shipped", {"parcel": "P9"})
    order.output()
    runs = until(lambda: [run for run in order.told("run ended") if run["state"] == "completed"], "it is told")
    assert runs[0]["type"] == "order"
    assert runs[0]["write_units"] > 0
    assert runs[0]["commits"] > 0
    assert "Ada" not in "".join(order.stack.logs("worker"))
