"""Where the commands go: the stack of a running ``torpor dev``, a deployed one, or any address."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import botocore.session
import msgspec
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError

from infra.api_client import ApiClient
from infra.aws import LOCAL_ACCESS_KEY, LOCAL_REGION, LOCAL_SECRET_KEY, client
from infra.fault import CalledWronglyError, DeployError
from infra.local_stack import local_api

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPBACK = {"127.0.0.1", "localhost", "::1"}

NOTE = Path(".torpor") / "dev.json"
"""Where ``torpor dev`` writes, in the folder it was started in, how to reach its stack."""

CONNECT_TIMEOUT_S = 2.0
"""Seconds in which a local AWS that still runs takes a connection. Design choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevNote:
    """What ``torpor dev`` tells other commands.

    Attributes:
        endpoint: the address of the local AWS.
        host: the Host header of the stack's HTTP API there.
        pid: the process of ``torpor dev``.
        outputs: the stack's outputs.
    """

    endpoint: str
    host: str
    pid: int
    outputs: dict[str, str]

    def write(self, folder: Path) -> Path:
        """Write the note below ``folder``; gives its path."""
        path = folder / NOTE
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = {"endpoint": self.endpoint, "host": self.host, "pid": self.pid, "outputs": self.outputs}
        path.write_text(json.dumps(fields, indent=2) + "\n")
        return path

    @contextlib.contextmanager
    def held(self, folder: Path) -> Iterator[Path]:
        """The note below ``folder`` for as long as this is open; gives its path.

        Raises:
            DeployError: another one runs there.
        """
        refuse_second(folder)
        path = self.write(folder)
        try:
            yield path
        finally:
            # By now it may be somebody else's.
            if self.read(folder) == self:
                path.unlink(missing_ok=True)

    @classmethod
    def read(cls, folder: Path) -> DevNote | None:
        """The note in ``folder`` itself, whether what wrote it still runs or not; None where there is none."""
        try:
            note = msgspec.json.decode((folder / NOTE).read_bytes(), type=cls)
            _ = urlsplit(note.endpoint).port
        except (OSError, ValueError):
            return None
        return note

    @classmethod
    def find(cls, folder: Path) -> DevNote | None:
        """The note of a ``torpor dev`` that still runs, started in ``folder`` or one above it."""
        for place in (folder, *folder.parents):
            note = cls.read(place)
            if note is not None and _is_alive(note.pid):
                return note
        return None

    @property
    def is_running(self) -> bool:
        """Whether its process is there and its stack answers: the number alone may be another process's by now."""
        return _is_alive(self.pid) and _is_listening(self.endpoint)


def refuse_second(folder: Path) -> None:
    """Raise DeployError where a ``torpor dev`` runs that was started in ``folder``."""
    note = DevNote.read(folder)
    if note is not None and note.is_running:
        raise DeployError(
            f"a torpor dev runs here already (pid {note.pid}, endpoint {note.endpoint}). End it, or start this one in "
            f"another folder."
        )


def _is_alive(pid: int) -> bool:
    if pid <= 0:
        # No process, but to the system a whole group of them.
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _is_listening(address: str) -> bool:
    try:
        target = urlsplit(address)
        socket.create_connection((target.hostname or "", target.port or 0), CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True


def find_api(*, stack: str | None, endpoint: str | None, region: str | None) -> ApiClient:
    """A client of the API that the options name: a stack's, the one at an address, else that of ``torpor dev``.

    Raises:
        DeployError: there is none; the message says what to do.
    """
    if endpoint is not None:
        return _at_address(endpoint, region)
    if stack is not None:
        return _of_stack(stack, region)
    note = DevNote.find(Path.cwd())
    if note is None:
        raise DeployError("No `torpor dev` runs here. Start one, or say where to go with --stack or --endpoint.")
    return local_api(note.endpoint, note.host)


def _at_address(endpoint: str, region: str | None) -> ApiClient:
    hostname = _hostname_of(endpoint)
    if hostname in LOOPBACK:
        # Nothing signed with the caller's own key is ever sent to a server on this machine.
        credentials = Credentials(LOCAL_ACCESS_KEY, LOCAL_SECRET_KEY)
        return ApiClient(url=endpoint, region=region or LOCAL_REGION, credentials=credentials)
    session = botocore.session.Session()
    signed_for = region or _region_in(hostname) or session.get_config_variable("region")
    if not signed_for:
        raise DeployError("The address does not tell its region: give --region.")
    return ApiClient(url=endpoint, region=signed_for, credentials=_own_credentials(session))


def _hostname_of(endpoint: str) -> str:
    # Half an address of IPv6 has no parts, and what is no port is found by whoever asks for it.
    with contextlib.suppress(ValueError):
        address = urlsplit(endpoint)
        if address.scheme in {"http", "https"} and address.hostname and (address.port is None or address.port > 0):
            return address.hostname
    raise CalledWronglyError(
        f"--endpoint must be an address such as https://abc.execute-api.eu-west-1.amazonaws.com, not {endpoint!r}."
    )


def _region_in(hostname: str) -> str | None:
    labels = hostname.split(".")
    place = labels.index("execute-api") + 1 if "execute-api" in labels else len(labels)
    return labels[place] if place < len(labels) else None


def _of_stack(stack: str, region: str | None) -> ApiClient:
    outputs = stack_outputs(stack, region)
    if "ApiUrl" not in outputs:
        raise DeployError(f"The stack {stack} has no output ApiUrl: is it one of torpor's?")
    return _at_address(outputs["ApiUrl"], region)


def stack_outputs(stack: str, region: str | None) -> dict[str, str]:
    """The outputs of a deployed stack by name; raises DeployError where it cannot be asked."""
    try:
        described: Any = client("cloudformation", region=region).describe_stacks(StackName=stack)
    except (BotoCoreError, ClientError) as error:
        raise DeployError(f"The stack {stack} cannot be looked up: {error}") from error
    return {output["OutputKey"]: output["OutputValue"] for output in described["Stacks"][0].get("Outputs", [])}


def _own_credentials(session: Any) -> Credentials:
    credentials = session.get_credentials()
    if credentials is None:
        raise DeployError(
            "There are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    return credentials.get_frozen_credentials()
