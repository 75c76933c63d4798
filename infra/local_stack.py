"""The local stack: template.yaml deployed by CloudFormation to a MiniStack of its own.

Tests share one through the ``local_stack`` fixture of tests/conftest.py; the demo, the benchmark and ``torpor dev``
start their own::

    with LocalStack.start(report=print) as stack:
        stack.api.request("POST", "/workflows/order", body=b'{"input": {}}')
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Self

from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from engine.clock import SystemClock
from infra.api_client import ApiClient
from infra.aws import LOCAL_ACCESS_KEY, LOCAL_REGION, LOCAL_SECRET_KEY
from infra.fault import DeployError
from infra.ministack import MiniStack, wait
from infra.package import EXAMPLE, Application, build_zip
from infra.place import ROOT, TEMPLATE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

STACK = "torpor"
BUCKET = "torpor-packages"

EXAMPLES = Application(modules=EXAMPLE, folder=ROOT)
"""What is deployed where nothing else is asked for."""

DEPLOY_TIMEOUT_MS = 120_000
"""Milliseconds that a deployment may take; it takes a few seconds on an idle machine. Design choice."""

POLL_S = 0.1

WORKERS_MAX = 4
"""Workers at once. On AWS another one is another machine; here all share the same few processors, and ten that start at
once make every one of them late. The template cannot say it: the local AWS takes a parameter's number for text there.
Design choice."""

FUNCTIONS = ("api", "worker", "resume", "sweeper")
"""The functions of the template, by the names that ``logs`` and ``worker_pids`` know."""


class LocalStack:
    """The template, deployed; ``start`` makes one, ``close`` or leaving its context ends it.

    Attributes:
        ministack: the local AWS it runs on.
        outputs: the stack's outputs by name (``TableName``, ``QueueUrl``, ...).
        api: a client of its HTTP interface; requests are signed.
    """

    def __init__(self, ministack: MiniStack, application: Application, parameters: Mapping[str, str]) -> None:
        self.ministack = ministack
        self.application = application
        self.outputs: dict[str, str] = {}
        self._parameters = dict(parameters)
        self._clients: dict[str, Any] = {}
        self._package: Path | None = None

    @classmethod
    def start(
        cls,
        *,
        application: Application = EXAMPLES,
        parameters: Mapping[str, str] | None = None,
        is_iam_enforced: bool = False,
        report: Callable[[str], None] = lambda _line: None,
    ) -> LocalStack:
        """Start a MiniStack, package the functions and deploy the template to it.

        Args:
            application: the author's modules.
            parameters: parameters of the template that shall differ from its defaults.
            is_iam_enforced: the functions may do what the template's policies allow and nothing else. Schedules are
                then always refused: the local AWS takes each to be of the group ``default``, which is not ours.
            report: is told of progress, a line at a time.

        Raises:
            DeployError: what failed, with the reasons CloudFormation gave.
        """
        report("starting the local AWS")
        ministack = MiniStack.start(is_iam_enforced=is_iam_enforced)
        try:
            stack = cls(ministack, application, parameters or {})
            stack.client("s3").create_bucket(Bucket=BUCKET)
            stack.deploy(report)
        except BaseException:
            ministack.stop()
            raise
        return stack

    def deploy(self, report: Callable[[str], None] = lambda _line: None) -> bool:
        """Package what the sources are now and deploy it; gives False where that is what is deployed already."""
        report("packaging the functions")
        package = build_zip(self.application, report=report)
        if package == self._package:
            return False
        self.client("s3").put_object(Bucket=BUCKET, Key=package.name, Body=package.read_bytes())
        change = self.client("cloudformation").create_stack if self._package is None else self._update_stack
        values = {"AppModule": self.application.modules, **self._parameters}
        report(f"deploying {TEMPLATE.name}")
        change(
            StackName=STACK,
            TemplateBody=_located(TEMPLATE.read_text(), f"s3://{BUCKET}/{package.name}"),
            Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in values.items()],
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        )
        self.outputs = self._settled(report)
        self._bound_workers()
        self._package = package
        return True

    def _bound_workers(self) -> None:
        functions = self.client("lambda")
        mappings = functions.list_event_source_mappings(FunctionName=self.outputs["WorkerFunction"])
        for mapping in mappings["EventSourceMappings"]:
            functions.update_event_source_mapping(
                UUID=mapping["UUID"], ScalingConfig={"MaximumConcurrency": WORKERS_MAX}
            )

    def _update_stack(self, **arguments: Any) -> None:
        try:
            self.client("cloudformation").update_stack(**arguments)
        except ClientError as error:
            if "No updates" not in str(error):
                raise DeployError(f"CloudFormation refuses the update: {error}") from error

    def _settled(self, report: Callable[[str], None]) -> dict[str, str]:
        """The outputs, once CloudFormation has finished; raises DeployError with its reasons where it has failed."""
        clock = SystemClock()
        deadline = clock.now() + DEPLOY_TIMEOUT_MS
        told = 0
        while clock.now() < deadline:
            described = self.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"][0]
            status = str(described["StackStatus"])
            resources = self.client("cloudformation").describe_stack_resources(StackName=STACK)["StackResources"]
            ready = sum(resource["ResourceStatus"].endswith("COMPLETE") for resource in resources)
            if ready > told:
                told = ready
                report(f"deployed {ready} resources")
            if status in {"CREATE_COMPLETE", "UPDATE_COMPLETE"}:
                return {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", [])}
            if "FAILED" in status or "ROLLBACK" in status:
                raise DeployError(f"CloudFormation ended in {status}: {self._reasons()}")
            wait(POLL_S)
        raise DeployError(f"CloudFormation has not finished within {DEPLOY_TIMEOUT_MS // 1000} seconds.")

    def _reasons(self) -> str:
        events = self.client("cloudformation").describe_stack_events(StackName=STACK)["StackEvents"]
        failed = [event for event in events if "FAILED" in event["ResourceStatus"]]
        return "; ".join(f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason')}" for event in failed)

    @property
    def endpoint(self) -> str:
        """The address of every AWS service of this stack."""
        return self.ministack.endpoint

    @property
    def region(self) -> str:
        """The region of everything in this stack."""
        return LOCAL_REGION

    @property
    def api_host(self) -> str:
        """The Host header by which the local AWS finds this stack's HTTP API at ``endpoint``."""
        return f"{self.outputs['ApiId']}.execute-api.localhost"

    @property
    def api(self) -> ApiClient:
        """A client of the HTTP interface."""
        return local_api(self.endpoint, self.api_host)

    @property
    def table_name(self) -> str:
        """The table's name."""
        return self.outputs["TableName"]

    @property
    def queue_url(self) -> str:
        """The wake queue's URL."""
        return self.outputs["QueueUrl"]

    def client(self, service: str) -> Any:
        """A botocore client of an AWS service of this stack, the same one each time."""
        if service not in self._clients:
            self._clients[service] = self.ministack.client(service)
        return self._clients[service]

    def logs(self, function: str, since_ms: int = 0) -> list[str]:
        """What a function (one of ``FUNCTIONS``) has logged since that time (milliseconds, UTC), oldest first."""
        return [event["message"] for event in self.log_events(function, since_ms)]

    def log_events(self, function: str, since_ms: int = 0) -> list[dict[str, Any]]:
        """The same with times and ids, as CloudWatch Logs tells them."""
        events: list[dict[str, Any]] = []
        token: dict[str, str] = {}
        while True:
            group = f"/torpor/{STACK}/{function}"
            page = self.client("logs").filter_log_events(logGroupName=group, startTime=since_ms, **token)
            events += page["events"]
            if "nextToken" not in page:
                return events
            token = {"nextToken": page["nextToken"]}

    def worker_pids(self, function: str = "worker") -> list[int]:
        """The processes that run a function (one of ``FUNCTIONS``): children of this stack's MiniStack and no other.

        Ending one with SIGKILL is what a crash of the execution environment looks like.
        """
        wanted = self.outputs[f"{function.capitalize()}Function"]
        return [pid for pid, name in self.ministack.workers().items() if name == wanted]

    def close(self) -> None:
        """End MiniStack, and all in it with it."""
        self.ministack.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def local_api(endpoint: str, host: str) -> ApiClient:
    """A client of the HTTP interface of a local stack."""
    credentials = Credentials(LOCAL_ACCESS_KEY, LOCAL_SECRET_KEY)
    return ApiClient(url=endpoint, region=LOCAL_REGION, credentials=credentials, host=host)


def _located(template: str, package: str) -> str:
    """The template with the package's address for its folder, as ``sam package`` writes it."""
    located, count = re.subn(r"(?m)^(\s+CodeUri:).*$", rf"\1 {package}", template)
    if count == 0:
        raise DeployError("No function in template.yaml has a CodeUri of its own, so none can be given its package.")
    return located
