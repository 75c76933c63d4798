"""The process of a function: its settings, its event loop over invocations, its log, its author's modules."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.clock import SystemClock
from engine.errors import UnknownTypeError
from handlers import logs
from handlers.application import IMPORT_RETRY_MS, Application, ApplicationBrokenError
from handlers.bootstrap import Settings, SettingsError
from handlers.process import Process
from tests.integration.lambda_event import recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import Cloud

ENVIRONMENT = {"TORPOR_APP": "app", "TORPOR_TABLE": "table", "TORPOR_QUEUE_URL": "http://queue"}


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.close()


# --- settings -----------------------------------------------------------------------------------------------------


def test_settings_read_the_environment_with_defaults_for_the_rest() -> None:
    settings = Settings.from_environment({**ENVIRONMENT, "TORPOR_LEASE_SECONDS": "2.5", "LOG_LEVEL": "DEBUG"})
    assert (settings.app, settings.table, settings.queue_url) == ("app", "table", "http://queue")
    assert (settings.lease_ms, settings.evict_margin_ms, settings.stop_margin_ms) == (2500, 10_000, 5_000)
    assert settings.log_level == "DEBUG"


def test_the_daemon_of_x_ray_is_told_nothing_unless_that_was_asked_for() -> None:
    daemon = {"AWS_XRAY_DAEMON_ADDRESS": "169.254.100.1:2000"}
    asked = [
        Settings.from_environment({**ENVIRONMENT, **daemon, **more}).xray_daemon
        for more in ({}, {"TORPOR_TRACING": "PassThrough"}, {"TORPOR_TRACING": "Active"})
    ]
    assert asked == ["", "", "169.254.100.1:2000"]
    assert Settings.from_environment({**ENVIRONMENT, "TORPOR_TRACING": "Active"}).xray_daemon == ""


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"TORPOR_TABLE": ""}, "TORPOR_TABLE"),
        ({"TORPOR_QUEUE_URL": ""}, "TORPOR_QUEUE_URL"),
        ({"TORPOR_LEASE_SECONDS": "soon"}, "TORPOR_LEASE_SECONDS"),
        ({"TORPOR_LEASE_SECONDS": "0"}, "TORPOR_LEASE_SECONDS"),
        ({"TORPOR_EVICT_MARGIN_SECONDS": "-1"}, "TORPOR_EVICT_MARGIN_SECONDS"),
        ({"TORPOR_STOP_MARGIN_SECONDS": "inf"}, "TORPOR_STOP_MARGIN_SECONDS"),
        ({"TORPOR_STOP_MARGIN_SECONDS": "10"}, "TORPOR_STOP_MARGIN_SECONDS"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(variables: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Settings.from_environment({**ENVIRONMENT, **variables})


# --- the event loop over invocations ------------------------------------------------------------------------------


def test_five_invocations_share_one_loop_with_failures_in_between(process: Process) -> None:
    async def invocation(number: int) -> asyncio.AbstractEventLoop:
        await asyncio.sleep(0)
        if number % 2:
            raise RuntimeError(number)
        return asyncio.get_running_loop()

    loops = set()
    for number in range(5):
        if number % 2:
            with pytest.raises(RuntimeError):
                process.run(invocation(number))
        else:
            loops.add(process.run(invocation(number)))
    assert loops == {process.loop}


def test_nothing_of_an_invocation_runs_in_the_next(process: Process) -> None:
    told: list[str] = []
    kept: list[asyncio.Task[None]] = []
    is_second = asyncio.Event()

    async def background() -> None:
        try:
            await is_second.wait()
            told.append("worked on")
        finally:
            told.append("stopped")

    async def first() -> None:
        kept.append(asyncio.create_task(background()))
        await asyncio.sleep(0)

    async def second() -> None:
        is_second.set()
        await asyncio.sleep(0.03)

    process.run(first())
    assert told == ["stopped"]
    process.run(second())
    assert told == ["stopped"]


def test_a_task_that_refuses_to_end_does_not_hold_the_invocation(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = True
    kept: list[asyncio.Task[None]] = []

    async def refuse() -> None:
        while stubborn:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                continue

    async def first() -> None:
        kept.append(asyncio.create_task(refuse(), name="refuser"))
        await asyncio.sleep(0)

    process.run(first())
    assert [record.tasks for record in caplog.records] == [["refuser"]]  # type: ignore[attr-defined]
    stubborn = False


def test_sigterm_asks_a_running_invocation_and_lets_it_end(process: Process) -> None:
    process.listen_for_sigterm()
    asked = asyncio.Event()

    async def invocation() -> str:
        with process.on_terminate(asked.set):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(asked.wait(), 60)
        return "ended"

    try:
        assert process.run(invocation()) == "ended"
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


# --- the author's modules -----------------------------------------------------------------------------------------


def _find(workflow_type: str) -> str:
    if workflow_type == "order":
        return "the workflow"
    raise UnknownTypeError(workflow_type)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_broken_module_is_named_and_harms_no_other(modules: Path) -> None:
    (modules / "sound_app.py").write_text("")
    (modules / "broken_app.py").write_text("import nothing_of_this_name")
    application = Application("sound_app, broken_app", _find, SystemClock())  # type: ignore[arg-type]
    assert application.get("order") == "the workflow"  # type: ignore[comparison-overlap]
    with pytest.raises(ApplicationBrokenError, match=r"TORPOR_APP.*broken_app.*nothing_of_this_name"):
        application.get("other")


def test_a_broken_module_is_tried_again_after_a_while(modules: Path) -> None:
    class Later(SystemClock):
        passed_ms = 0

        def now(self) -> int:
            return super().now() + self.passed_ms

    clock = Later()
    (modules / "mended_app.py").write_text("raise SystemExit(1)")
    application = Application("mended_app", _find, clock)  # type: ignore[arg-type]
    with pytest.raises(ApplicationBrokenError):
        application.get("other")
    (modules / "mended_app.py").write_text("mended = True")
    with pytest.raises(ApplicationBrokenError):
        application.get("other")
    clock.passed_ms = IMPORT_RETRY_MS
    with pytest.raises(UnknownTypeError):
        application.get("other")


# --- a real process -----------------------------------------------------------------------------------------------

INVOCATIONS = """
import json, sys
from handlers import bootstrap, {module}

class Context:
    def get_remaining_time_in_millis(self):
        return 30_000

for event in json.load(sys.stdin):
    try:
        print(json.dumps({{"answer": {module}.handler(event, Context())}}), flush=True)
    except Exception as error:
        print(json.dumps({{"raised": type(error).__name__}}), flush=True)
bootstrap.wiring().close()
"""


def invoke(settings: Settings, module: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a process of a function prints: its log, and what the handler answered to each event, as Lambda calls it."""
    environment = {
        **os.environ,  # noqa: TID251 - a child process needs its parent's
        "TORPOR_APP": settings.app,
        "TORPOR_TABLE": settings.table,
        "TORPOR_QUEUE_URL": settings.queue_url,
        "TORPOR_QUEUE_ARN": settings.queue_arn,
        "TORPOR_SCHEDULE_GROUP": settings.schedule_group,
        "TORPOR_SCHEDULE_ROLE_ARN": settings.schedule_role_arn,
        "TORPOR_STACK": settings.stack,
    }
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", INVOCATIONS.format(module=module)],
        input=json.dumps(events),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env=environment,
    )
    assert ran.stderr == ""
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.fixture
def deployed(settings: Settings, modules: Path) -> Settings:
    """Settings of a process that imports its author's module from a file."""
    (modules / "deployed_app.py").write_text(
        "from engine import workflow\n\n"
        "@workflow('deployed')\n"
        "async def deployed(ctx, fails):\n"
        "    if fails:\n"
        "        raise ValueError('as told')\n"
        "    return 'ended'\n"
    )
    return replace(settings, app="deployed_app")


def http_event(method: str, path: str, value: Any = None) -> dict[str, Any]:
    event = recorded("http_api_v2")
    event["rawPath"] = event["requestContext"]["http"]["path"] = path
    event["requestContext"]["http"]["method"] = method
    event["headers"]["content-type"] = "application/json"
    return event if value is None else {**event, "body": json.dumps(value)}


def test_handlers_serve_five_warm_invocations_as_lambda_calls_them(
    deployed: Settings, cloud: Cloud, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(modules), str(Path(__file__).parents[2])]))
    starts = [http_event("POST", "/workflows/deployed", {"id": f"d-{n}", "input": bool(n % 2)}) for n in range(4)]
    wrong = http_event("POST", "/workflows/deployed", {"id": ""})
    lines = invoke(deployed, "api", [*starts, wrong])
    answers = [line["answer"] for line in lines if "answer" in line]
    assert [answer["statusCode"] for answer in answers] == [201, 201, 201, 201, 400]
    batches = [{"Records": [record]} for record in cloud.wakes()]
    lines = invoke(deployed, "worker", [*batches, {"Records": [{**recorded("sqs_record"), "body": "?"}]}])
    answers = [line["answer"] for line in lines if "answer" in line]
    assert [len(answer["batchItemFailures"]) for answer in answers] == [0, 0, 0, 0, 1]
    runs = [line for line in lines if line.get("message") == "run ended"]
    assert sorted((run["workflow_id"], run["state"]) for run in runs) == [
        ("d-0", "completed"),
        ("d-1", "failed"),
        ("d-2", "completed"),
        ("d-3", "failed"),
    ]
    swept = [line for line in invoke(deployed, "sweeper", [recorded("scheduled")] * 2) if "answer" in line]
    assert [line["answer"]["overdue"] for line in swept] == [0, 0]
    assert {"raised": "UnreadableEventError"} in invoke(deployed, "resume", [{}, recorded("eventbridge")])


def test_a_cold_start_imports_nothing_that_it_does_not_need() -> None:
    """Import time is the user's latency; how long it takes is measured by the benchmark."""

    def imported(module: str) -> set[str]:
        code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
        root = Path(__file__).parents[2]
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
        return set(ran.stdout.split())

    heavy = {
        "aws_lambda_powertools",
        "boto3",
        "pydantic",
        "fastapi",
        "opentelemetry",
        "examples",
        "infra",
        "moto",
        "cronsim",
    }
    web = {"starlette", "mangum", "anyio"}
    for module in ("worker", "sweeper", "resume"):
        assert imported(f"handlers.{module}") & (heavy | web) == set()
    assert imported("handlers.api") & heavy == set()


# --- the log ------------------------------------------------------------------------------------------------------


def test_a_record_is_one_line_of_json_with_its_fields_at_the_top() -> None:
    record = logging.makeLogRecord({"name": "n", "levelname": "INFO", "msg": "run %s", "args": ("ended",)})
    record.workflow_id = "order-1\n"
    record.state = {"odd"}
    line = logs.JsonFormatter().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["message"], told["workflow_id"], told["state"], told["level"]) == (
        "run ended",
        "order-1\n",
        "{'odd'}",
        "INFO",
    )


def test_records_appear_once_and_not_beside_those_of_lambda(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        root.handlers = []
        logs.set_up("INFO", native_json=True)
        logs.set_up("INFO", native_json=False)
        logging.getLogger("handlers.worker").info("run ended", extra={"commits": 2})
        [line] = capsys.readouterr().out.splitlines()
        assert json.loads(line)["commits"] == 2
        mine = list(root.handlers)
        logs.set_up("INFO", native_json=True)
        assert root.handlers == mine
    finally:
        root.handlers, root.level = before, level
