"""Where things lie: the sources of torpor, the environments beside them, and what is built."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder that holds template.yaml, the rooms and the environments."""

TEMPLATE = ROOT / "template.yaml"
LOCKS = ROOT / "infra" / "locks"

BUILD = ROOT / ".torpor"
"""What is built and cached; `make clean` removes it."""

FUNCTION = BUILD / "function"
"""The package for AWS: the CodeUri of template.yaml."""

MINISTACK_PYTHON = ROOT / ".venv-ministack" / "bin" / "python"
"""The interpreter of the local AWS, which also runs the functions there."""
