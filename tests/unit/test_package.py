"""What goes into the functions' package, and where it is found."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from infra.fault import DeployError
from infra.package import Application, build_folder, build_zip, pip_target
from infra.place import LOCKS, ROOT, TEMPLATE
from tests.tidy.template import read_template

if TYPE_CHECKING:
    from pathlib import Path


def test_modules_are_found_in_the_authors_folder_before_ours(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "single.py").touch()
    (tmp_path / "examples").mkdir()
    application = Application(modules="shop.orders,single, shop.refunds,examples.own", folder=tmp_path)
    assert application.sources() == [tmp_path / "examples", tmp_path / "shop", tmp_path / "single.py"]


def test_what_is_in_the_package_anyway_is_not_looked_for(tmp_path: Path) -> None:
    assert Application(modules="handlers.worker", folder=tmp_path).sources() == []
    assert Application(modules="examples.orders", folder=tmp_path).sources() == [ROOT / "examples"]


def test_a_module_that_is_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="no module nowhere in"):
        Application(modules="nowhere.orders", folder=tmp_path).sources()


@pytest.mark.parametrize("modules", ["my-app", "../x", "app.py/", "app,", "shop..orders", "class", "app orders"])
def test_what_is_no_name_of_a_module_is_refused(tmp_path: Path, modules: str) -> None:
    with pytest.raises(DeployError, match="is no name of a module: --app takes names as Python imports them"):
        Application.of(modules, tmp_path)


def test_a_folder_of_data_does_not_stand_for_the_module_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "prices.csv").touch()
    assert Application.of(None, tmp_path).sources() == [tmp_path / "app.py"]
    (tmp_path / "app" / "__init__.py").touch()
    assert Application.of(None, tmp_path).sources() == [tmp_path / "app"]


def test_a_folder_without_init_comes_along_where_something_in_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import lib.tools\nfrom parts import small\nfrom deep.inner.most import x\nimport data.x"
    )
    for place in ("lib/tools.py", "parts/small/__init__.py", "deep/inner/most.py", "data/y.py"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).touch()
    assert {path.name for path in Application.of(None, tmp_path).sources()} == {"app.py", "lib", "parts", "deep"}


def test_spaces_between_modules_do_not_reach_the_template(tmp_path: Path) -> None:
    modules = Application.of(" shop.orders, app ", tmp_path).modules
    assert re.fullmatch(read_template(TEMPLATE.read_text())["Parameters"]["AppModule"]["AllowedPattern"], modules)


PYTHON = """#!/bin/sh
case "$*" in *cache_tag*) echo {version};; esac
while [ $# -gt 0 ]; do [ "$1" = --target ] && mkdir -p "$2"; shift; done
"""
"""Says its version, and installs nothing where it is told to install something."""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Such a Python, and packages of it that are nobody else's."""
    monkeypatch.setattr("infra.package.BUILD", tmp_path / "build")
    monkeypatch.setattr("infra.package.find_uv", lambda: None)
    made = tmp_path / "python"
    made.write_text(PYTHON.format(version="cpython-311"))
    made.chmod(0o755)
    return made


def test_what_cannot_be_copied_is_told(tmp_path: Path, python: Path) -> None:
    package = tmp_path / "app"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nowhere").symlink_to(tmp_path / "none")
    with pytest.raises(DeployError, match=r"app cannot be packed: .*No such file or directory: '.*nowhere'"):
        build_zip(Application.of(None, tmp_path), interpreter=python)


def test_what_one_python_has_installed_is_not_for_the_next_one_in_its_place(tmp_path: Path, python: Path) -> None:
    (tmp_path / "app.py").touch()
    application = Application.of(None, tmp_path)
    first = build_zip(application, interpreter=python)
    assert build_zip(application, interpreter=python) == first
    python.write_text(PYTHON.format(version="cpython-313"))
    assert build_zip(application, interpreter=python) != first


def test_a_module_of_the_authors_goes_before_a_dependency_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.package.BUILD", tmp_path / "build")
    uv = tmp_path / "uv"
    uv.write_text(
        "#!/bin/sh\n"
        'while [ $# -gt 0 ]; do [ "$1" = --target ] && mkdir -p "$2/words" && echo theirs > "$2/words/__init__.py" '
        '&& echo theirs > "$2/words/more.py" && echo theirs > "$2/letters.py"; shift; done\n'
    )
    uv.chmod(0o755)
    monkeypatch.setattr("infra.package.find_uv", lambda: uv)
    (tmp_path / "app.py").write_text("import words\nimport letters\n")
    (tmp_path / "words").mkdir()
    for place in ("words/__init__.py", "letters.py"):
        (tmp_path / place).write_text("ours = 1\n")
    function = tmp_path / "function"
    for _ in range(2):
        build_folder(Application.of(None, tmp_path), function)
        assert (function / "letters.py").read_text() == (function / "words" / "__init__.py").read_text() == "ours = 1\n"
        assert (function / "handlers" / "worker.py").exists()


def test_pip_takes_the_wheels_that_uv_would() -> None:
    pytest.importorskip("pip")
    command = [sys.executable, "-m", "pip", "debug", "--verbose", *pip_target()]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for platform in ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"):
        assert f"cp313-cp313-{platform}" in told
        assert f"cp311-abi3-{platform}" in told


def test_what_the_modules_import_from_beside_them_comes_along(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import json, words\nfrom shop.orders import order\nfrom engine import Context\n")
    (tmp_path / "words.py").write_text("def later():\n    import letters.small\n")
    (tmp_path / "unused.py").write_text("")
    for folder in ("shop", "letters", "json"):
        (tmp_path / folder).mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "orders.py").write_text("from . import unused\nimport broken\nimport app")
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "letters" / "__init__.py").write_text("")
    found = {path.name for path in Application.of(None, tmp_path).sources()}
    # A folder without __init__.py, such as "json" here, is data.
    assert found == {"app.py", "words.py", "shop", "letters", "broken.py"}


@pytest.mark.parametrize("taken", ["engine", "adapters", "handlers", "infra"])
@pytest.mark.parametrize("shape", ["{}.py", "{}/__init__.py"])
def test_a_name_of_torpors_own_is_refused(tmp_path: Path, taken: str, shape: str) -> None:
    (tmp_path / "app.py").write_text(f"from {taken}.orders import order\n")
    place = tmp_path / shape.format(taken)
    place.parent.mkdir(exist_ok=True)
    place.touch()
    for modules in ("app", f"{taken}.orders"):
        with pytest.raises(DeployError, match=f"own package {taken}, .*: rename yours"):
            Application(modules=modules, folder=tmp_path).sources()
    (tmp_path / "app.py").write_text("import json\n")
    assert Application(modules="app", folder=tmp_path).sources() == [tmp_path / "app.py"]


def test_without_app_py_a_clone_runs_its_example(tmp_path: Path) -> None:
    assert Application.of(None, tmp_path).modules == "examples.orders"
    assert Application.of("shop", tmp_path).modules == "shop"
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").touch()
    assert Application.of(None, tmp_path).modules == "app"


def test_without_requirements_of_the_authors_every_file_is_held_by_its_hash(tmp_path: Path) -> None:
    assert Application(modules="shop", folder=tmp_path).requirements() == (LOCKS / "runtime.txt").read_text()


def test_the_authors_requirements_join_our_versions(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("tabulate>=0.9\n")
    lines = Application(modules="shop", folder=tmp_path).requirements().splitlines()
    assert "tabulate>=0.9" in lines
    assert any(line.startswith("aiobotocore==") for line in lines)
    # pip refuses a file in which only some lines have hashes.
    assert not any("--hash" in line or line.endswith("\\") for line in lines)
    hashed = "tabulate==0.9.0 --hash=sha256:00\n"
    (tmp_path / "requirements.txt").write_text(hashed)
    assert Application(modules="shop", folder=tmp_path).requirements() == (LOCKS / "runtime.txt").read_text() + hashed


def test_what_the_authors_requirements_include_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "requirements.txt").write_text("-r more/base.txt  # ours\ntabulate\n-rrest.txt\n-r https://a/b\n")
    (tmp_path / "more" / "base.txt").write_text("--requirement=deep.txt\n")
    (tmp_path / "more" / "deep.txt").write_text("orjson\n")
    (tmp_path / "rest.txt").write_text("xmltodict==1.0\n")
    application = Application(modules="shop", folder=tmp_path)
    asked = [line for line in application.requirements().splitlines() if line]
    assert asked[-4:] == ["orjson", "tabulate", "xmltodict==1.0", "-r https://a/b"]
    (tmp_path / "more" / "deep.txt").write_text("-r base.txt\n")
    with pytest.raises(DeployError, match=r"base\.txt includes itself"):
        application.requirements()


@pytest.mark.parametrize("lock", ["dev", "runtime", "ministack", "sam", "uv"])
def test_locks_hold_hashes_and_name_no_index(lock: str) -> None:
    text = (LOCKS / f"{lock}.txt").read_text()
    assert "--hash=sha256:" in text
    assert "://" not in text
    assert "--index" not in text


@pytest.mark.parametrize("lock", ["dev", "runtime"])
def test_locks_hold_what_the_project_asks_for(lock: str) -> None:
    pins = dict(re.findall(r"(?m)^([a-z0-9-]+)==([^ ;]+)", (LOCKS / f"{lock}.txt").read_text()))
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*declared["project"]["dependencies"], *(declared["dependency-groups"]["dev"] if lock == "dev" else [])]
    for requirement in map(Requirement, asked):
        assert requirement.name in pins, f"{requirement.name} is missing: run `make lock`"
        assert pins[requirement.name] in requirement.specifier, f"{requirement} is not what is locked: run `make lock`"
