"""Nothing asks the machine for time, chance, ids or settings but the ports, under whatever alias."""

from __future__ import annotations

import tomllib

import pytest

from tests.tidy.ambient import ambient_faults
from tests.tidy.sources import PRODUCT, ROOT, Source, refuse, sources_of


def barred_by_ruff() -> frozenset[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return frozenset(settings["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])


def test_time_chance_ids_and_settings_come_through_ports() -> None:
    refuse(ambient_faults(sources_of(*PRODUCT, "examples"), barred_by_ruff()))


@pytest.mark.parametrize(
    "text",
    [
        "import time\nx = time.time()",
        "from time import monotonic as tick\nx = tick()",
        "import datetime as dt\nx = dt.datetime.now(dt.UTC)",
        "from datetime import datetime\nx = datetime.now()",
        "import random\nx = random.random()",
        "import uuid\nx = uuid.uuid4()",
        "def f():\n    from uuid import uuid4\n    return uuid4()",
        "import os\nx = os.environ['A']",
        "from os import environ\nx = environ",
        "from os import getenv\nx = getenv('A')",
        "import secrets\nx = secrets.token_hex()",
    ],
)
def test_a_way_around_the_ports_is_found(text: str) -> None:
    assert list(ambient_faults([Source.parse("engine/run.py", text)], frozenset()))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("engine/clock.py", "import time\nx = time.time_ns()"),
        ("handlers/bootstrap.py", "import os\nx = os.environ['A']"),
        ("engine/scope.py", "import random\nx = random.Random(7)"),
        ("engine/run.py", "time = 3\nx = time\nclock.time.now()"),
        ("engine/run.py", '"""Calls time.time() in words only."""'),
        ("infra/stack.py", "import os\nx = os.environ  # noqa: TID251 - the developer's own credentials"),
    ],
)
def test_what_is_allowed_is_left_alone(path: str, text: str) -> None:
    assert not list(ambient_faults([Source.parse(path, text)], barred_by_ruff()))


def test_infra_must_give_a_reason() -> None:
    source = Source.parse("infra/stack.py", "import os\nx = os.environ  # noqa: TID251")
    assert list(ambient_faults([source], barred_by_ruff()))
