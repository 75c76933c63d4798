"""The log lines from which the template makes its metrics: they are written, with the numbers that the alarms need."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from handlers.logs import JsonFormatter
from handlers.sweeper import PATIENCE_MS, SWEPT, SweeperFunction
from handlers.turn import DIED
from infra.place import TEMPLATE
from tests.integration.driven import Driven, told, wake
from tests.integration.lambda_event import LambdaContext
from tests.tidy.template import read_template

if TYPE_CHECKING:
    import pytest

    from handlers.bootstrap import Wiring
    from tests.integration.conftest import Cloud
    from tests.shifted_clock import ShiftedClock


def test_a_run_that_finds_the_one_before_it_dead_says_so(
    clock: ShiftedClock, driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    driven.start("worker-step", "w")

    async def die() -> None:
        await (await driven.wiring.store()).claim("w", lease_ms=60_000, deadline_ms=None)

    driven.wiring.process.run(die())
    clock.shift(60_001)
    assert driven.work([wake("w")]) == []
    assert driven.state("w") == "completed"
    [died] = told(caplog, DIED)
    assert (died["workflow_id"], died["deaths"]) == ("w", 1)
    # The alarm that is made from it is there whatever the parameter says.
    levels = logging.getLevelNamesMapping()
    parameter = read_template(TEMPLATE.read_text())["Parameters"]["LogLevel"]
    assert died["levelno"] >= max(levels[name] for name in parameter["AllowedValues"])


def test_a_sweep_tells_every_number_that_a_metric_is_made_from(
    clock: ShiftedClock, wiring: Wiring, cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def start() -> None:
        for number in range(3):
            await (await wiring.store()).start(workflow_id=f"w{number}", type="worker-step", input=b"\xf6")

    wiring.process.run(start())
    head = {"pk": {"S": "w1"}, "sk": {"S": "HEAD"}}
    long_ago = clock.now() - PATIENCE_MS - 60_000
    cloud.client("dynamodb").update_item(
        TableName=cloud.table,
        Key=head,
        UpdateExpression="SET due_at = :at",
        ExpressionAttributeValues={":at": {"N": str(long_ago)}},
    )
    SweeperFunction(wiring)({}, LambdaContext())
    [swept] = [record for record in caplog.records if record.message == SWEPT]
    line: dict[str, Any] = json.loads(JsonFormatter().format(swept))
    assert (line["message"], line["woken"]) == (SWEPT, 1)
    assert line["longest_ms"] == PATIENCE_MS + 60_000
    resources = read_template(TEMPLATE.read_text())["Resources"].values()
    filters = [each["Properties"] for each in resources if each["Type"] == "AWS::Logs::MetricFilter"]
    values = {each["MetricTransformations"][0]["MetricValue"] for each in filters if SWEPT in each["FilterPattern"]}
    assert values == {"$.woken", "$.longest_ms"}
    assert all(value.removeprefix("$.") in line for value in values)
