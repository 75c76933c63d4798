"""MiniStack as a child process: a local AWS on a free port of the loopback interface, for as long as it is needed."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from engine.clock import SystemClock
from infra.aws import LOCAL_REGION, local_client
from infra.environment import MINISTACK
from infra.fault import DeployError

if TYPE_CHECKING:
    from types import TracebackType

HOST = "127.0.0.1"

START_TIMEOUT_MS = 60_000
"""Milliseconds that MiniStack may take to answer; it takes two seconds on an idle machine. Design choice."""

MEMORY_FREE_BYTES_MIN = 4 * 1024**3
"""Free bytes of memory file system below which the local AWS keeps its files on disk. Design choice: a copy of the
package is some 60 MB, and a handful of workers live at once."""

START_ATTEMPTS_MAX = 3
"""Ports tried: between asking for a free one and binding it, somebody else may take it. Design choice."""

STOP_TIMEOUT_S = 5.0
"""Seconds between asking MiniStack to stop and ending it. Design choice."""

POLL_S = 0.05


class MiniStack:
    """A running MiniStack; ``start`` makes one, ``stop`` or leaving its context ends it with all its children.

    Attributes:
        endpoint: its address, ``http://127.0.0.1:<port>``, for every service.
        folder: what is temporary of it, its log among it; gone after ``stop``.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
        self._process = process
        self.port = port
        self.endpoint = f"http://{HOST}:{port}"
        self.folder = folder

    @classmethod
    def start(cls, *, is_iam_enforced: bool = False, is_verbose: bool = False) -> MiniStack:
        """Start one and wait until it answers.

        Args:
            is_iam_enforced: refuse what the caller's policies do not allow, as AWS does.
            is_verbose: its log, in ``folder``, also tells of each request.

        Raises:
            DeployError: it is not installed, or does not start.
        """
        if not MINISTACK.python.exists():
            raise DeployError(f"The local AWS is not installed ({MINISTACK.python} is missing): run `make setup`.")
        complaint = ""
        for _ in range(START_ATTEMPTS_MAX):
            candidate = cls._spawn({"AUTH": str(is_iam_enforced).lower(), "LOG_LEVEL": _log_level(is_verbose)})
            if candidate.answers(START_TIMEOUT_MS):
                return candidate
            complaint = candidate.log()[-2000:]
            candidate.stop()
        raise DeployError(f"The local AWS does not start. The end of its log:\n{complaint}")

    @classmethod
    def _spawn(cls, options: dict[str, str]) -> MiniStack:
        folder = Path(tempfile.mkdtemp(prefix="torpor-ministack-", dir=_memory_folder()))
        port = _free_port()
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}  # noqa: TID251 - a child needs a path and a home, and must see nothing else of ours
        environment = {
            **inherited,
            **options,
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(port),
            "MINISTACK_REGION": LOCAL_REGION,
            "TMPDIR": str(folder),
            "STATE_DIR": str(folder),
            # Ports of services that torpor does not use.
            "IOT_MTLS_ENABLED": "false",
            "SFTP_ENABLED": "false",
        }
        with (folder / "ministack.log").open("wb") as log:
            process = subprocess.Popen(
                # -P: the guard's own folder must not shadow MiniStack's imports.
                [MINISTACK.python, "-P", Path(__file__).with_name("guard.py"), folder],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        return cls(process, port, folder)

    def answers(self, within_ms: int) -> bool:
        """Whether it answers, or comes to answer within that many milliseconds."""
        clock = SystemClock()
        deadline = clock.now() + within_ms
        while clock.now() < deadline and self._process.poll() is None:
            if self._is_healthy():
                return True
            wait(POLL_S)
        return False

    def _is_healthy(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=2)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/_ministack/health")
            return connection.getresponse().status == http.client.OK
        return False

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def log(self, offset: int = 0) -> str:
        """What it has written so far, from that many bytes on; empty once it is gone."""
        with contextlib.suppress(OSError), (self.folder / "ministack.log").open("rb") as written:
            written.seek(offset)
            return written.read().decode(errors="replace")
        return ""

    def client(self, service: str) -> Any:
        """A botocore client of an AWS service there; closes over one connection pool, so keep it."""
        return local_client(service, self.endpoint)

    def workers(self) -> dict[int, str]:
        """The processes that run functions: process id to the function's name, of this MiniStack's children only."""
        marker = f"{self.folder}/ministack-lambda-"
        found: dict[int, str] = {}
        for pid, parent, command in _processes():
            if parent == self._process.pid and marker in command:
                name = command.split(marker, 1)[1].split("/", 1)[0]
                found[pid] = name.rsplit("-", 1)[0]
        return found

    def stop(self) -> None:
        """End it and its children, and remove its folder; a second call does nothing."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        # The group is ours alone: functions that have not noticed yet go with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def wait(seconds: float) -> None:
    """Wait; for tools that poll another process."""
    threading.Event().wait(seconds)


def _log_level(is_verbose: bool) -> str:  # noqa: FBT001 - one private caller
    return "DEBUG" if is_verbose else "INFO"


def _memory_folder() -> Path | None:
    """A folder in memory with room to spare, or None: every worker gets a copy of the package, thousands of files."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder that we make in it is ours alone
    try:
        has_room = shutil.disk_usage(memory).free > MEMORY_FREE_BYTES_MIN
    except OSError:
        return None
    return memory if has_room and os.access(memory, os.W_OK) else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _processes() -> list[tuple[int, int, str]]:
    """Every process as (id, parent's id, command)."""
    if not Path("/proc/self/stat").exists():
        table = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,command="], check=True, capture_output=True, text=True)
        rows = (line.split(None, 2) for line in table.stdout.splitlines())
        return [(int(row[0]), int(row[1]), row[2]) for row in rows if len(row) == len(("id", "parent", "command"))]
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended while we looked
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append((int(entry.name), parent, command))
    return found
