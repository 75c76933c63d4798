"""What an author's modules import that a function on AWS will not have, and what is not worth a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.package import Application
from infra.place import ROOT
from infra.unpacked import unpacked

if TYPE_CHECKING:
    from pathlib import Path


def lines_for(folder: Path, modules: str = "app") -> list[str]:
    """The lines about modules in ``folder/project``, with what is in ``folder/dependencies``."""
    code, dependencies = folder / "code", folder / "dependencies"
    for made in (code, dependencies):
        made.mkdir(exist_ok=True)
    application = Application(modules=modules, folder=folder / "project")
    for source in application.sources():
        (code / source.name).symlink_to(source)
    (code / "engine").symlink_to(ROOT / "engine")
    return unpacked(application, code, dependencies)


def write(folder: Path, name: str, text: str) -> None:
    """A file of the project."""
    file = folder / "project" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def missed(file: str, name: str) -> str:
    return f"{file} imports {name}, which nothing in the package has: add its distribution to requirements.txt"


def test_what_nothing_has_is_named_once_with_its_file(tmp_path: Path) -> None:
    write(tmp_path, "app.py", "import yaml, pydantic.fields\nfrom numpy.linalg import norm\nimport words\n")
    write(tmp_path, "words.py", "import yaml\nimport more_itertools\n")
    assert lines_for(tmp_path) == [
        missed("app.py", "yaml"),
        missed("app.py", "pydantic"),
        missed("app.py", "numpy"),
        missed("words.py", "more_itertools"),
    ]


def test_what_a_function_has_is_not_named(tmp_path: Path) -> None:
    write(
        tmp_path,
        "app.py",
        "from __future__ import annotations\nimport os.path, zoneinfo, boto3, botocore.session, s3transfer, jmespath\n"
        "import urllib3, dateutil.parser, six, engine\nimport yaml, one, _fast\nfrom shop import prices\n",
    )
    write(tmp_path, "shop/prices.csv", "")
    write(tmp_path, "shop/prices.py", "")
    (tmp_path / "dependencies" / "yaml").mkdir(parents=True)
    (tmp_path / "dependencies" / "one.py").touch()
    (tmp_path / "dependencies" / "_fast.cpython-313-x86_64-linux-gnu.so").touch()
    assert lines_for(tmp_path) == []


@pytest.mark.parametrize("name", ["cgi", "distutils", "telnetlib"])
def test_what_the_functions_python_no_longer_has_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path, "app.py", f"import {name}\n")
    assert lines_for(tmp_path) == [missed("app.py", name)]


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import yaml\nexcept ImportError:\n    import ruamel\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import yaml\n",
        "import typing\nif typing.TYPE_CHECKING:\n    import yaml\n",
        "import sys\nif sys.platform == 'win32':\n    import yaml\n",
        "async def step():\n    import yaml\n",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import yaml\n",
        "try:\n    import words\nexcept ImportError:\n    pass\n",
        "import yaml (\n",
    ],
)
def test_what_may_be_missing_is_not_named(tmp_path: Path, text: str) -> None:
    write(tmp_path, "app.py", text)
    write(tmp_path, "words.py", "import yaml\n")
    assert lines_for(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "from shop.inner import late\n",
        "from .inner import late\n",
        "from .inner.late import x\n",
        "from . import inner\n",
        "async def step():\n    from shop.inner.late import x\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import words\nelse:\n    import shop.inner.late\n",
    ],
)
def test_what_is_never_imported_is_not_read(tmp_path: Path, text: str) -> None:
    write(tmp_path, "shop/__init__.py", "")
    write(tmp_path, "shop/orders.py", text)
    write(tmp_path, "shop/inner/__init__.py", "from ..inner import late\n")
    write(tmp_path, "shop/inner/late.py", "import yaml\n")
    write(tmp_path, "shop/tests/test_orders.py", "import pytest\n")
    assert lines_for(tmp_path, "shop.orders, engine.testing") == [missed("shop/inner/late.py", "yaml")]


def test_what_python_cannot_read_for_its_depth_ends_nothing(tmp_path: Path) -> None:
    write(tmp_path, "app.py", f"import yaml\nx = {' + '.join(['1'] * 3000)}\n")
    assert lines_for(tmp_path) == []


@pytest.mark.parametrize("example", ["crawl", "orders", "trip"])
def test_the_examples_need_nothing_more(tmp_path: Path, example: str) -> None:
    (tmp_path / "project").mkdir()
    assert lines_for(tmp_path, f"examples.{example}") == []
