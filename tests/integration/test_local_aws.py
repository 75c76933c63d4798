"""The local AWS as a child: it ends with whoever started it, however that ends, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.ministack import MiniStack, wait
from infra.place import ROOT

GONE_WITHIN_S = 60.0

STARTER = """
import signal
from infra.ministack import MiniStack
started = MiniStack.start()
print(started.endpoint, started.folder, flush=True)
signal.pause()
"""

pytestmark = pytest.mark.ministack


def commands_of(folder: str) -> list[str]:
    """The commands of running processes that mention ``folder``."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in command:
            found.append(command)
    return found


def test_stopping_leaves_no_process_and_no_file() -> None:
    with MiniStack.start() as started:
        assert started.is_running
        assert started.client("sqs").create_queue(QueueName="some-queue")["QueueUrl"]
        folder = started.folder
        assert commands_of(str(folder))
    assert not started.is_running
    assert not folder.exists()
    check_gone(str(folder))
    started.stop()


def check_gone(folder: str) -> None:
    """Nothing of ``folder`` runs any more, or in a moment: who was killed may still be on its way out."""
    for _ in range(int(GONE_WITHIN_S / 0.1)):
        if not commands_of(folder) and not Path(folder).exists():
            return
        wait(0.1)
    pytest.fail(f"after {GONE_WITHIN_S} s there still are {commands_of(folder)}")


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_when_its_starter_is_killed(how: signal.Signals) -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with starter:
        assert starter.stdout is not None
        try:
            _endpoint, folder = starter.stdout.readline().split()
            assert commands_of(folder)
            os.kill(starter.pid, how)
            starter.wait(GONE_WITHIN_S)
        finally:
            starter.kill()
    check_gone(folder)
