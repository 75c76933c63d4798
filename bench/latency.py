"""How long a message takes to get a workflow going, on the deployed template, beside the least it could take there.

From the first byte of the signed POST to the first line of the next step, against a floor deployed to the same local
AWS: HTTP API, function, queue, function, one transaction. Both are asked in turn, one at a time, when both are warm.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.figure import Figure, Peer, median, percentile
from bench.subject import BenchFailedError
from engine.clock import SystemClock
from infra.local_stack import BUCKET, DEPLOY_TIMEOUT_MS, LocalStack, local_api
from infra.ministack import wait
from infra.package import Application
from infra.place import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from infra.api_client import ApiClient

FLOOR = ROOT / "bench" / "floor"
FLOOR_STACK = "floor"
FLOOR_LOGS = f"/aws/lambda/{FLOOR_STACK}-work"

RATIO_MAX = 1.5
"""Source: the limit of a message's latency against the floor."""

SAMPLES, SAMPLES_QUICK = 30, 12
WARM_UPS = 6

PAUSE_S = 0.3
"""Seconds between two requests: long enough for either to have ended. A slow one would only be counted as slow."""

SETTLE_SECONDS_MAX = 120
"""Seconds for workflows to reach their waits, and for the last lines of a log to arrive. Design choice: a busy machine
needs a minute."""

PERCENTILE = 95


def measure(*, is_quick: bool, report: Callable[[str], None]) -> list[Figure]:
    """The figures of latency; raises BenchFailedError where a message got nowhere."""
    count = WARM_UPS + (SAMPLES_QUICK if is_quick else SAMPLES)
    names = [f"sample-{number:03d}" for number in range(count)]
    with LocalStack.start(application=Application(modules="bench.waiting", folder=ROOT), report=report) as stack:
        report("deploying the floor")
        floor = _deploy_floor(stack)
        report("starting workflows")
        for name in names:
            body = json.dumps({"id": name, "input": name}).encode()
            _request(stack.api, "POST", "/workflows/waiting", body)
            _until(partial(_is_waiting, stack.api, name), f"{name} does not wait")
        sent = _send(stack.api, floor, names, report)
        arrived = {
            "ours": _all_arrived(lambda: stack.logs("worker"), names),
            "floor": _all_arrived(lambda: _floor_lines(stack), names),
        }
    ours, least = (_latencies(sent[side], arrived[side], names) for side in ("ours", "floor"))
    note = f"of {count - WARM_UPS} messages, one at a time; the floor in the same run, in turn"
    return [
        Figure(
            name="message_to_progress_median",
            value=median(ours),
            unit="ms",
            limit=RATIO_MAX,
            peer=Peer(name="floor", value=median(least)),
            note=note,
        ),
        Figure(
            name=f"message_to_progress_p{PERCENTILE}",
            value=percentile(ours, PERCENTILE),
            unit="ms",
            peer=Peer(name="floor", value=percentile(least, PERCENTILE)),
            note=note,
        ),
    ]


def _send(
    ours: ApiClient, floor: ApiClient, names: Iterable[str], report: Callable[[str], None]
) -> dict[str, dict[str, int]]:
    """Post every sample to both; when each was sent, in nanoseconds, by side and sample."""
    report("posting messages")
    sent: dict[str, dict[str, int]] = {"ours": {}, "floor": {}}
    for name in names:
        body = json.dumps({"sample": name}).encode()
        for side, api, path in (("ours", ours, f"/workflows/{name}/messages/go"), ("floor", floor, "/messages")):
            sent[side][name] = time.time_ns()  # noqa: TID251 - what is measured
            _request(api, "POST", path, body)
            wait(PAUSE_S)
    return sent


def _request(api: ApiClient, method: str, path: str, body: bytes | None = None) -> Any:
    reply = api.request(method, path, body=body)
    if not reply.is_success:
        raise BenchFailedError(f"{method} {path} answers {reply.status}: {reply.body.decode(errors='replace')}")
    return reply.json()


def _is_waiting(api: ApiClient, name: str) -> bool:
    return bool(_request(api, "GET", f"/workflows/{name}")["state"] == "sleeping")


def _until(holds: Callable[[], bool], complaint: str) -> None:
    clock = SystemClock()
    deadline = clock.now() + SETTLE_SECONDS_MAX * 1000
    while not holds():
        if clock.now() > deadline:
            raise BenchFailedError(f"{complaint} within {SETTLE_SECONDS_MAX} seconds")
        wait(0.1)


def _all_arrived(lines: Callable[[], Iterable[str]], names: list[str]) -> dict[str, int]:
    """When each sample arrived, once all have."""
    _until(lambda: len(_arrivals(lines())) >= len(names), "messages got nowhere")
    return _arrivals(lines())


def _arrivals(lines: Iterable[str]) -> dict[str, int]:
    """When each sample arrived, in nanoseconds, by what the functions have printed."""
    arrived: dict[str, int] = {}
    for line in lines:
        told = _parsed(line)
        if "at_ns" in told:
            arrived.setdefault(told["sample"], told["at_ns"])
    return arrived


def _latencies(sent: dict[str, int], arrived: dict[str, int], names: list[str]) -> list[float]:
    """Milliseconds from sending to arrival, of every sample after the warm-up."""
    return [(arrived[name] - sent[name]) / 1e6 for name in names[WARM_UPS:]]


def _parsed(line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


# --- the floor ----------------------------------------------------------------------------------------------------


def _deploy_floor(stack: LocalStack) -> ApiClient:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(FLOOR / "functions.py", "functions.py")
    stack.client("s3").put_object(Bucket=BUCKET, Key="floor.zip", Body=packed.getvalue())
    template = (FLOOR / "template.yaml").read_text().replace("CodeUri: functions/", f"CodeUri: s3://{BUCKET}/floor.zip")
    cloudformation = stack.client("cloudformation")
    cloudformation.create_stack(
        StackName=FLOOR_STACK, TemplateBody=template, Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
    )
    for _ in range(DEPLOY_TIMEOUT_MS // 100):
        described = cloudformation.describe_stacks(StackName=FLOOR_STACK)["Stacks"][0]
        if described["StackStatus"] == "CREATE_COMPLETE":
            outputs = {output["OutputKey"]: output["OutputValue"] for output in described["Outputs"]}
            return local_api(stack.endpoint, f"{outputs['ApiId']}.execute-api.localhost")
        if "PROGRESS" not in described["StackStatus"]:
            raise BenchFailedError(f"the floor cannot be deployed: {described['StackStatus']}")
        wait(0.1)
    raise BenchFailedError("the floor is not deployed in time")


def _floor_lines(stack: LocalStack) -> list[str]:
    lines: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = stack.client("logs").filter_log_events(logGroupName=FLOOR_LOGS, **token)
        lines += [event["message"] for event in page["events"]]
        if "nextToken" not in page:
            return lines
        token = {"nextToken": page["nextToken"]}
