"""The template and the code call the same things by the same names; each checker is shown a template it must refuse."""

from __future__ import annotations

from typing import Any

from adapters.dynamodb.model.schema import TABLE_DEFINITION, TIME_TO_LIVE
from tests.tidy.prose import Names
from tests.tidy.sources import ROOT, Source, project_sources, refuse, tracked_files
from tests.tidy.template import environment_faults, handler_faults, loop_faults, read_template, table_faults

SMALL = """
Globals: {Function: {Environment: {Variables: {TORPOR_TABLE: !Ref Table, TORPOR_OLD: x}}}}
Resources:
  Table:
    Type: AWS::DynamoDB::Table
    Properties:
      KeySchema: [{AttributeName: pk, KeyType: HASH}, {AttributeName: sk, KeyType: RANGE}]
      TimeToLiveSpecification: {AttributeName: ttl, Enabled: true}
  Worker:
    Type: AWS::Serverless::Function
    Properties:
      Handler: handlers.worker.handler
      Events: {Wakes: {Type: SQS}}
"""
KEYS = {"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]}
TTL = {"AttributeName": "ttl", "Enabled": True}


def template() -> dict[str, Any]:
    return read_template((ROOT / "template.yaml").read_text("utf-8"))


def test_the_table_is_the_one_of_the_adapter() -> None:
    refuse(table_faults(template(), TABLE_DEFINITION, TIME_TO_LIVE))


def test_bootstrap_reads_what_the_template_sets() -> None:
    [bootstrap] = [source for source in project_sources() if source.path == "handlers/bootstrap.py"]
    refuse(environment_faults(template(), bootstrap))


def test_every_handler_exists() -> None:
    refuse(handler_faults(template(), Names.of(tracked_files(), project_sources())))


def test_what_feeds_its_own_queue_may_loop() -> None:
    refuse(loop_faults(template()))


def test_another_table_is_found() -> None:
    assert not list(table_faults(read_template(SMALL), KEYS, TTL))
    [fault] = table_faults(read_template(SMALL.replace("sk,", "sort,")), KEYS, TTL)
    assert "KeySchema" in fault
    [fault] = table_faults(read_template(SMALL), KEYS, {**TTL, "AttributeName": "expires"})
    assert "TimeToLive" in fault
    reordered = {"KeySchema": KEYS["KeySchema"][::-1]}
    assert list(table_faults(read_template(SMALL), reordered, TTL))


def test_variables_that_differ_are_found() -> None:
    bootstrap = Source.parse("handlers/bootstrap.py", 'read("TORPOR_TABLE"), read("TORPOR_NEW")')
    first, second = environment_faults(read_template(SMALL), bootstrap)
    assert "TORPOR_OLD" in first
    assert "TORPOR_NEW" in second


def test_a_missing_handler_is_found() -> None:
    there = Names.of([], [Source.parse("handlers/worker.py", "def handler(event, context): ...")])
    gone = Names.of([], [Source.parse("handlers/worker.py", "def handle(event, context): ...")])
    assert not list(handler_faults(read_template(SMALL), there))
    assert list(handler_faults(read_template(SMALL), gone))


def test_a_loop_that_lambda_would_stop_is_found() -> None:
    allowed = SMALL.replace("Handler:", "RecursiveLoop: Allow\n      Handler:")
    assert list(loop_faults(read_template(SMALL)))
    assert not list(loop_faults(read_template(allowed)))
