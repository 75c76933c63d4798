"""How authors name other workflows: by id, by type, by tags; checked before anything is recorded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine import limits
from engine.author.registry import Workflow, is_type
from engine.errors import InvalidIdError

SCHEDULE_PREFIX = "schedule:"
"""What the workflow id of a schedule begins with; no other workflow's does."""

UNREACHABLE_ID = re.compile(
    r"(^|.*/)\.{1,2}(/.*|$)|.*/messages/.*|.+/(messages|output|history|wake|cancel|recover|replay)|.*\?.*", re.DOTALL
)
"""Ids that an address cannot say: they would be read as another id and something to do with it.

A question mark, however it is written, ends a path for API Gateway: a function is told of what stands before it alone.
"""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def has_control(name: str) -> bool:
    """Whether ``name`` holds a control character, which no id has."""
    return _CONTROL.search(name) is not None


def type_name(what: str, workflow: object) -> str:
    """The type that ``workflow``, a ``Workflow`` or a type's name, stands for; ``what`` says what was called.

    Raises:
        TypeError: it is neither.
        InvalidIdError: no workflow can have this type.
    """
    if isinstance(workflow, Workflow):
        name: str = workflow.name
    elif isinstance(workflow, str):
        name = workflow
    else:
        hint = f"; register {workflow.__name__!r} with @workflow" if hasattr(workflow, "__name__") else ""
        raise TypeError(f"{what} takes what @workflow has made, or the name of a type, not {workflow!r}{hint}")
    if not is_type(name) or _size(name) > limits.WORKFLOW_ID_BYTES_MAX:
        most = limits.WORKFLOW_ID_BYTES_MAX
        raise InvalidIdError(
            f"{name!r} is no workflow type: printable text without '/' and '?', of 1 to {most} bytes, is one"
        )
    return name


def check_id(what: str, workflow_id: object) -> str:
    """``workflow_id``, where it can be the id of a workflow.

    Raises:
        TypeError: it is no text.
        InvalidIdError: it is empty or too long.
    """
    if not isinstance(workflow_id, str):
        raise TypeError(f"{what} takes the id of a workflow, a str, not {workflow_id!r}")
    if not 1 <= _size(workflow_id) <= limits.WORKFLOW_ID_BYTES_MAX:
        most = limits.WORKFLOW_ID_BYTES_MAX
        raise InvalidIdError(f"{what}: the id of a workflow has 1 to {most} bytes of UTF-8, {workflow_id!r} has not")
    return str(workflow_id)


def new_id(what: str, workflow_id: object) -> str:
    """``workflow_id``, where a workflow that is started can have it.

    Raises:
        TypeError: it is no text.
        InvalidIdError: it is empty or too long, has a control character, is that of a schedule, or reads as another
            address.
    """
    checked = check_id(what, workflow_id)
    if has_control(checked):
        raise InvalidIdError(f"{what}: the workflow id {checked!r} holds a control character")
    if UNREACHABLE_ID.fullmatch(checked):
        raise InvalidIdError(
            f"{what}: {checked!r} would be read as another id in an address: an id must not contain '?', "
            "'/messages/' or the segments . and .., nor end in the name of an operation, such as /output"
        )
    if checked.startswith(SCHEDULE_PREFIX):
        raise InvalidIdError(f'{what}: {checked!r} would be a schedule: no other id begins with "{SCHEDULE_PREFIX}"')
    return checked


def check_tags(what: str, tags: Any) -> dict[str, str]:
    """``tags`` as a dict, where they are texts by name; empty where they are None.

    Raises:
        TypeError: they are not.
    """
    if tags is None:
        return {}
    if not isinstance(tags, Mapping):
        raise TypeError(f"{what}: tags are a mapping of texts by name, not {tags!r}")
    for name, value in tags.items():
        if not isinstance(name, str) or not name or not isinstance(value, str):
            raise TypeError(f"{what}: a tag is a text under a name, not {name!r}: {value!r}; write numbers as texts")
    return dict(tags)


def _size(name: str) -> int:
    return len(name.encode("utf-8", "surrogatepass"))
