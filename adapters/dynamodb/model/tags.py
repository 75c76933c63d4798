"""What makes workflows found: an item for each tag, and one for each place that only one workflow may have. Pure.

Their partitions begin with a control character, which no workflow id, type or tag name can hold: so they belong to no
workflow, and type, name and value cannot run together.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from adapters.dynamodb.model.expressions import Action, Condition, Item, check_action, delete_action, put_action, text
from adapters.dynamodb.model.items import HEAD, key
from adapters.dynamodb.model.limits import TAG_VALUE_BYTES_MAX
from adapters.dynamodb.model.schema import PARTITION_KEY, SORT_KEY
from engine.lifecycle import ENDED, OVER, WorkflowState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.dynamodb.model.items import Head

TAG_PREFIX = "\0TAG\0"
UNIQUE_PREFIX = "\0UNIQUE\0"
PLACE = "PLACE"
"""The sort key of the one item of a place."""

_DIGEST_BYTES = 32


def tag_partition(workflow_type: str, name: str, value: str) -> str:
    """The partition of the items of all workflows of a type that have a tag with this value."""
    data = value.encode()
    if len(data) > TAG_VALUE_BYTES_MAX:
        # The items say the value in full, and whoever reads them compares.
        return f"{TAG_PREFIX}{workflow_type}\0{name}\0#{hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()}"
    return f"{TAG_PREFIX}{workflow_type}\0{name}\0={value}"


def tag_keys(head: Head) -> list[Item]:
    """The keys of the items that a workflow has while it has not ended, one for each of its tags."""
    partitions = [tag_partition(head.type, name, value) for name, value in head.tags.items()]
    return [{PARTITION_KEY: text(partition), SORT_KEY: text(head.workflow_id)} for partition in partitions]


def tag_items(head: Head) -> list[Item]:
    """Those items, each with all tags: who looks for several reads those of one and needs no HEAD."""
    tags = {"M": {name: text(value) for name, value in head.tags.items()}}
    return [{**tag, "tags": tags} for tag in tag_keys(head)]


def has_tags(item: Item, wanted: Mapping[str, str]) -> bool:
    """Whether the workflow of a tag's item has at least the tags ``wanted``."""
    tags = item["tags"]["M"]
    return all(name in tags and tags[name]["S"] == value for name, value in wanted.items())


def place_key(workflow_type: str, tags: Mapping[str, str]) -> Item:
    """The key of the place that a unique workflow of this type, with exactly these tags, has for itself."""
    hashed = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    # Names hold no control characters, and a value is preceded by its length: no two sets of tags are written alike.
    for name, value in sorted(tags.items()):
        data = value.encode()
        hashed.update(name.encode() + b"\0%d\0" % len(data) + data)
    return {PARTITION_KEY: text(f"{UNIQUE_PREFIX}{workflow_type}\0{hashed.hexdigest()}"), SORT_KEY: text(PLACE)}


def holder_of(place: Item) -> str:
    """The id of the workflow that has a place."""
    return str(place["workflow_id"]["S"])


def take_place(head: Head, replaced: str | None = None) -> list[Action]:
    """The actions that give a unique workflow its place: a free one, or that of ``replaced``, which has failed."""
    place = {**place_key(head.type, head.tags), "workflow_id": text(head.workflow_id)}
    if replaced is None:
        is_free = Condition("attribute_not_exists(#pk) OR #workflow_id = :me", {":me": text(head.workflow_id)})
        return [put_action(place, is_free)]
    names_it = Condition("#workflow_id = :replaced", {":replaced": text(replaced)})
    has_failed = Condition("#state = :failed", {":failed": text(WorkflowState.FAILED)})
    return [put_action(place, names_it), check_action(key(replaced, HEAD), has_failed)]


def leave_place(head: Head) -> Action:
    """The action by which a unique workflow leaves its place."""
    is_mine = Condition("#workflow_id = :me", {":me": text(head.workflow_id)})
    return delete_action(place_key(head.type, head.tags), is_mine)


def found_actions(before: Head, after: Head) -> tuple[list[Action], list[Action]]:
    """What a commit does to how its workflow is found: to its place, and to its tags.

    Its tags go when it ends and come back when it goes on. Its place is free once it has completed or was cancelled;
    one that has failed keeps it. Whoever goes on takes it again, unless another one has it by then.
    """
    places: list[Action] = []
    if after.is_unique and _has_place(before) and not _has_place(after):
        places = [leave_place(after)]
    elif after.is_unique and before.state in ENDED and after.state not in ENDED:
        places = take_place(after)
    if before.state not in ENDED and after.state in ENDED:
        return places, [delete_action(tag) for tag in tag_keys(after)]
    if before.state in ENDED and after.state not in ENDED:
        return places, [put_action(tag) for tag in tag_items(after)]
    return places, []


def _has_place(head: Head) -> bool:
    return head.state not in OVER
