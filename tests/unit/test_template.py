"""What template.yaml must say so that the protocol holds on AWS; where the emulator would not notice."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.events import MESSAGE
from engine.location import RESERVED_PREFIX
from handlers.bootstrap import Settings
from handlers.sweeper import SWEPT
from handlers.turn import DIED, FAILS
from infra.local_stack import EXAMPLES, FUNCTIONS
from infra.package import AWS_PLATFORM, AWS_PYTHON_VERSION
from infra.place import ROOT, TEMPLATE, function
from tests.tidy.template import read_template, statements_of

SAM: dict[str, Any] = read_template(TEMPLATE.read_text())
RESOURCES: dict[str, Any] = SAM["Resources"]
PARAMETERS: dict[str, Any] = SAM["Parameters"]

VISIBILITY_FACTOR = 6
"""How often a queue's visibility timeout holds its function's timeout. Source: AWS's advice for SQS event sources."""

SQS_VISIBILITY_MAX_S = 12 * 60 * 60
LAMBDA_TIMEOUT_MAX_S = 15 * 60
HTTP_API_TIMEOUT_S = 30


def of_type(kind: str) -> dict[str, Any]:
    return {name: resource["Properties"] for name, resource in RESOURCES.items() if resource["Type"] == kind}


FUNCTION_PROPERTIES = of_type("AWS::Serverless::Function")


def statements(role: str) -> list[dict[str, Any]]:
    [policy] = RESOURCES[role]["Properties"]["Policies"]
    return statements_of(policy)


def actions(role: str) -> set[str]:
    found = [statement["Action"] for statement in statements(role)]
    return {action for each in found for action in ([each] if isinstance(each, str) else each)}


@pytest.mark.parametrize("timeout_s", PARAMETERS["Timeout"]["AllowedValues"])
def test_a_wake_in_hand_stays_hidden_for_six_times_the_timeout(timeout_s: int) -> None:
    visibility_s = SAM["Mappings"]["VisibilityTimeout"][str(timeout_s)]["Seconds"]
    assert timeout_s * VISIBILITY_FACTOR <= visibility_s <= SQS_VISIBILITY_MAX_S
    assert timeout_s <= LAMBDA_TIMEOUT_MAX_S


def test_the_queue_takes_its_visibility_from_the_workers_timeout() -> None:
    assert RESOURCES["WakeQueue"]["Properties"]["VisibilityTimeout"] == ["VisibilityTimeout", "Timeout", "Seconds"]
    assert FUNCTION_PROPERTIES["Worker"]["Timeout"] == "Timeout"
    assert PARAMETERS["Timeout"]["Default"] in PARAMETERS["Timeout"]["AllowedValues"]


def test_failed_wakes_end_in_a_queue_that_keeps_them() -> None:
    redrive = RESOURCES["WakeQueue"]["Properties"]["RedrivePolicy"]
    assert "DeadLetterQueue" in str(redrive["deadLetterTargetArn"])
    assert redrive["maxReceiveCount"] >= 5
    assert RESOURCES["DeadLetterQueue"]["Properties"]["MessageRetentionPeriod"] == 14 * 86400


def test_one_bad_wake_of_a_batch_harms_no_other() -> None:
    [event] = FUNCTION_PROPERTIES["Worker"]["Events"].values()
    assert event["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert event["Properties"]["BatchSize"] == 10
    assert event["Properties"]["ScalingConfig"] == {"MaximumConcurrency": "WorkerConcurrency"}
    # What SQS event sources accept.
    concurrency = PARAMETERS["WorkerConcurrency"]
    assert 2 == concurrency["MinValue"] <= concurrency["Default"] <= concurrency["MaxValue"] == 1000


def test_the_worker_may_feed_its_own_queue() -> None:
    assert FUNCTION_PROPERTIES["Worker"]["RecursiveLoop"] == "Allow"


def test_every_call_of_the_api_is_authorised() -> None:
    routes = of_type("AWS::ApiGatewayV2::Route")
    assert routes
    assert {route["AuthorizationType"] for route in routes.values()} == {"AWS_IAM"}


def test_the_api_answers_within_what_the_http_api_waits() -> None:
    assert FUNCTION_PROPERTIES["Api"]["Timeout"] <= HTTP_API_TIMEOUT_S


def test_the_sweeper_is_done_before_it_begins_again() -> None:
    [event] = FUNCTION_PROPERTIES["Sweeper"]["Events"].values()
    assert event["Properties"]["Schedule"] == "rate(1 minute)"
    assert FUNCTION_PROPERTIES["Sweeper"]["Timeout"] < 60


def test_every_function_has_a_role_of_its_own() -> None:
    roles = [str(properties["Role"]) for properties in FUNCTION_PROPERTIES.values()]
    assert len(roles) == len(set(roles)) == len(FUNCTIONS)


@pytest.mark.parametrize("role", sorted(of_type("AWS::IAM::Role")))
def test_no_role_may_do_everything_to_anything(role: str) -> None:
    for statement in statements(role):
        assert statement["Effect"] == "Allow"
        assert "*" not in str(statement["Action"])
        # X-Ray knows no resource of a trace.
        assert statement["Resource"] != "*" or statement["Sid"] == "Traces"


def test_each_function_may_do_what_it_does_and_no_more() -> None:
    assert {"sqs:ReceiveMessage", "dynamodb:UpdateItem", "scheduler:CreateSchedule"} <= actions("WorkerRole")
    assert "sqs:ReceiveMessage" not in actions("ApiRole") | actions("ResumeRole") | actions("SweeperRole")
    assert not {action for action in actions("SweeperRole") if action.startswith(("dynamodb:Put", "scheduler:"))}
    assert actions("SchedulerRole") == {"sqs:SendMessage"}


def test_nothing_is_traced_and_nobody_may_trace_unless_that_is_asked_for() -> None:
    tracing = PARAMETERS["Tracing"]
    assert (tracing["Default"], tracing["AllowedValues"]) == ("PassThrough", ["PassThrough", "Active"])
    assert SAM["Conditions"]["IsTraced"] == ["Tracing", "Active"]
    common = SAM["Globals"]["Function"]
    assert common["Tracing"] == common["Environment"]["Variables"]["TORPOR_TRACING"] == "Tracing"
    traced = {name for name, function in FUNCTION_PROPERTIES.items() if function.get("Tracing", "Tracing") == "Tracing"}
    assert traced == set(FUNCTION_PROPERTIES) - {"Sweeper"}
    for name, role in of_type("AWS::IAM::Role").items():
        [policy] = role["Policies"]
        on_condition = [each for each in policy["PolicyDocument"]["Statement"] if isinstance(each, list)]
        if name.removesuffix("Role") not in traced:
            assert on_condition == []
            continue
        [[condition, statement, otherwise]] = on_condition
        assert (condition, otherwise) == ("IsTraced", "AWS::NoValue")
        assert statement["Action"] == ["xray:PutTelemetryRecords", "xray:PutTraceSegments"]


def test_what_steps_may_do_is_given_to_the_worker_alone() -> None:
    given = {name for name, role in of_type("AWS::IAM::Role").items() if "ManagedPolicyArns" in role}
    assert given == {"WorkerRole"}
    arns = RESOURCES["WorkerRole"]["Properties"]["ManagedPolicyArns"]
    assert arns == ["HasWorkerPolicies", "WorkerPolicyArns", "AWS::NoValue"]
    assert PARAMETERS["WorkerPolicyArns"]["Default"] == ""


def test_the_bus_is_the_stacks_own_and_what_is_published_on_it_wakes_nobody() -> None:
    [bus] = of_type("AWS::Events::EventBus").values()
    assert "${AWS::StackName}" in bus["Name"]
    rules = [
        event["Properties"]
        for properties in FUNCTION_PROPERTIES.values()
        for event in properties.get("Events", {}).values()
        if event["Type"] == "EventBridgeRule"
    ]
    on_bus = [rule for rule in rules if "EventBusName" in rule]
    assert [rule["EventBusName"] for rule in on_bus] == ["Bus"]
    # Names that begin so are refused to workflows, so no publication matches.
    kinds = on_bus[0]["Pattern"]["detail-type"]
    assert MESSAGE in kinds
    assert all(kind.startswith(RESERVED_PREFIX) for kind in kinds)
    assert "events:PutEvents" in actions("WorkerRole")
    assert "events:PutEvents" not in actions("ApiRole") | actions("ResumeRole") | actions("SweeperRole")


def test_all_functions_log_as_json_to_a_group_that_forgets() -> None:
    groups = of_type("AWS::Logs::LogGroup")
    assert all("RetentionInDays" in group for group in groups.values())
    for properties in FUNCTION_PROPERTIES.values():
        assert properties["LoggingConfig"]["LogFormat"] == "JSON"
        assert any(name in str(properties["LoggingConfig"]["LogGroup"]) for name in groups)


def test_the_log_of_accesses_has_a_name_that_needs_no_room_in_the_accounts_policy() -> None:
    [stage] = of_type("AWS::ApiGatewayV2::Stage").values()
    group = str(stage["AccessLogSettings"]["DestinationArn"]).removesuffix(".Arn")
    assert RESOURCES[group]["Properties"]["LogGroupName"].startswith("/aws/vendedlogs/")


def test_what_is_kept_is_encrypted_backed_up_and_outlives_the_stack() -> None:
    table = RESOURCES["Table"]
    assert table["DeletionPolicy"] == table["UpdateReplacePolicy"] == "Retain"
    assert table["Properties"]["BillingMode"] == "PAY_PER_REQUEST"
    assert table["Properties"]["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True
    assert table["Properties"]["SSESpecification"]["SSEEnabled"] is True
    assert all(queue["SqsManagedSseEnabled"] for queue in of_type("AWS::SQS::Queue").values())


def test_the_defaults_are_settings_that_the_handlers_accept() -> None:
    variables = {
        "TORPOR_TABLE": "table",
        "TORPOR_QUEUE_URL": "url",
        "TORPOR_LEASE_SECONDS": str(PARAMETERS["LeaseSeconds"]["Default"]),
        "TORPOR_EVICT_MARGIN_SECONDS": str(PARAMETERS["EvictMarginSeconds"]["Default"]),
        "TORPOR_STOP_MARGIN_SECONDS": str(PARAMETERS["StopMarginSeconds"]["Default"]),
    }
    settings = Settings.from_environment(variables)
    assert settings.stop_margin_ms < settings.evict_margin_ms < PARAMETERS["Timeout"]["AllowedValues"][0] * 1000
    assert PARAMETERS["AppModule"]["Default"] == EXAMPLES.modules


def test_the_package_is_made_for_the_runtime_and_where_the_template_looks() -> None:
    assert SAM["Globals"]["Function"]["Runtime"] == f"python{AWS_PYTHON_VERSION}"
    assert SAM["Globals"]["Function"]["Architectures"] == [AWS_PLATFORM.partition("-")[0]]
    places = {(ROOT / properties["CodeUri"]).resolve() for properties in FUNCTION_PROPERTIES.values()}
    assert places == {function(ROOT).resolve()}
    # Complete as it is: a build would leave the bytecode out.
    assert all(RESOURCES[name]["Metadata"]["SkipBuild"] is True for name in FUNCTION_PROPERTIES)


# --- alarms ---------------------------------------------------------------------------------------------------------

ALARMS = of_type("AWS::CloudWatch::Alarm")
FILTERS = of_type("AWS::Logs::MetricFilter")
TOLD = {"RepairsMetric": SWEPT, "OldestDueMetric": SWEPT, "DeathsMetric": DIED, "FaultsMetric": FAILS}


def test_each_metric_is_made_from_a_line_that_is_written() -> None:
    assert FILTERS.keys() == TOLD.keys()
    for name, message in TOLD.items():
        assert FILTERS[name]["FilterPattern"] == f'{{ $.message = "{message}" }}'
        assert len(FILTERS[name]["MetricTransformations"]) == 1


def test_every_alarm_looks_at_a_metric_that_there_is_and_may_tell_somebody() -> None:
    metrics = {
        transformation["MetricName"] for each in FILTERS.values() for transformation in each["MetricTransformations"]
    }
    assert {alarm["MetricName"] for alarm in ALARMS.values()} == {*metrics, "ApproximateNumberOfMessagesVisible"}
    for name, alarm in ALARMS.items():
        assert alarm["AlarmActions"] == alarm["OKActions"] == ["HasAlarmTopic", ["AlarmTopicArn"], "AWS::NoValue"], name
        assert alarm["AlarmDescription"], name
        assert alarm["TreatMissingData"] == ("breaching" if name == "OldestDueAlarm" else "notBreaching"), name
    assert PARAMETERS["AlarmTopicArn"]["Default"] == ""


def test_the_sweepers_line_is_written_whatever_the_log_level() -> None:
    sweeper = FUNCTION_PROPERTIES["Sweeper"]
    assert sweeper["Environment"]["Variables"] == {"LOG_LEVEL": "INFO"}
    assert sweeper["LoggingConfig"]["ApplicationLogLevel"] == "INFO"
    assert ALARMS["OldestDueAlarm"]["Threshold"] >= 2 * 60_000
