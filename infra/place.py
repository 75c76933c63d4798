"""Where things lie: the sources of torpor, the environments of its tools, and what is built.

In a checkout everything is beside the sources, as the Makefile makes it. Installed from a wheel, nothing may be written
there: what is the same for every project is in the user's cache, what belongs to a project in its own folder.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder that holds the rooms."""

_PACKED = Path(__file__).with_name("template.yaml")

IS_CHECKOUT = not _PACKED.exists()
"""Whether torpor runs from its repository; the wheel alone has the template among the modules of ``infra``."""

TEMPLATE = ROOT / "template.yaml" if IS_CHECKOUT else _PACKED
LOCKS = ROOT / "infra" / "locks"

PROJECT_FOLDER = Path(".torpor")
"""What is made for one project, below the folder in which a command is started."""


def _user_cache() -> Path:
    told = os.environ.get("XDG_CACHE_HOME")  # noqa: TID251 - where a user keeps caches is the user's to say
    return Path(told or Path.home() / ".cache") / "torpor"


BUILD = ROOT / ".torpor" if IS_CHECKOUT else _user_cache()
"""What is built and cached; `make clean` removes that of a checkout."""


def deployment(folder: Path) -> Path:
    """The folder in which AWS's tools find template.yaml and build, for a project in ``folder``."""
    return ROOT if IS_CHECKOUT else folder / PROJECT_FOLDER / "deploy"


def function(folder: Path) -> Path:
    """The package for AWS, which template.yaml names in its CodeUri, for a project in ``folder``."""
    return deployment(folder) / ".torpor" / "function"
