"""The process of a function: its settings, its event loop over invocations, its log, its author's modules."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from typing import TYPE_CHECKING

import pytest

from engine.clock import SystemClock
from engine.errors import UnknownTypeError
from handlers import logs
from handlers.application import IMPORT_RETRY_MS, Application, ApplicationBrokenError
from handlers.bootstrap import Settings, SettingsError
from handlers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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

    async def background() -> None:
        try:
            await asyncio.sleep(0.01)
            told.append("worked on")
        finally:
            told.append("stopped")

    async def first() -> None:
        kept.append(asyncio.create_task(background()))
        await asyncio.sleep(0)

    async def second() -> None:
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
            await asyncio.wait_for(asked.wait(), 5)
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
