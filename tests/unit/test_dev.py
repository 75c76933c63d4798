"""``torpor dev`` before it deploys: what it says of the author's modules, and when it looks at them again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infra.dev import Watch, announcement
from infra.package import Application
from infra.place import ROOT
from infra.trial import Trial, try_imports

APP = """\
from engine import workflow

print("not ours to read")


@workflow("greet")
async def greet(ctx, name):
    return name
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A package's folder, with the engine in it."""
    folder = tmp_path.resolve() / "code"
    folder.mkdir()
    (folder / "engine").symlink_to(ROOT / "engine")
    return folder


def trial_of(code: Path, modules: str = "app") -> Trial:
    # What the engine itself needs is in our own environment.
    dependencies = next(path for path in sys.path if path.endswith("site-packages"))
    return try_imports(Path(sys.executable), code, Path(dependencies), modules)


def test_modules_that_import_tell_their_workflows(code: Path) -> None:
    (code / "app.py").write_text(APP)
    (code / "more.py").write_text(APP.replace("greet", "part"))
    assert trial_of(code, "app, more") == Trial(types=("greet", "part"), complaint=None)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("def (", "app.py, line 10: SyntaxError: invalid syntax"),
        ("import nowhere_at_all", "app.py, line 10: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("raise SystemExit(3)", "app.py, line 10: SystemExit: 3"),
        ("import os; os._exit(3)", "app: importing ended Python with code 3."),
        ('workflow("a/b")(greet.fn)', "app.py, line 10: InvalidIdError: 'a/b' is no workflow type"),
        ("import shop.orders", "shop/orders.py, line 2: ZeroDivisionError: division by zero"),
    ],
)
def test_what_does_not_import_is_named_with_its_line(code: Path, line: str, complaint: str) -> None:
    (code / "app.py").write_text(f"{APP}\n{line}\n")
    (code / "shop").mkdir()
    (code / "shop" / "orders.py").write_text("\n1 / 0\n")
    told = trial_of(code).complaint or ""
    assert told.startswith(complaint)
    assert "\n" not in told


def test_a_module_may_write_what_it_likes(code: Path) -> None:
    (code / "app.py").write_text(
        f"{APP}\nimport os\nos.write(1, b'\\xfe\\xff')\nos.write(2, b'\\xff\\n')\nprint('hello')\n"
    )
    assert trial_of(code) == Trial(types=("greet",), complaint=None)


def test_a_module_that_is_nowhere_in_its_package_is_named(code: Path) -> None:
    (code / "shop").mkdir()
    assert trial_of(code, "shop.gone").complaint == "shop.gone: ModuleNotFoundError: No module named 'shop.gone'"


def test_importing_does_not_reach_the_callers_account(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "real")
    (code / "app.py").write_text(
        'import os\nraise ValueError(os.environ["AWS_ACCESS_KEY_ID"], "AWS_PROFILE" in os.environ)'
    )
    assert trial_of(code).complaint == "app.py, line 2: ValueError: ('test', False)"


def test_what_is_deployed_is_said_first(tmp_path: Path) -> None:
    example = Application.of(None, tmp_path)
    expected = "no app.py here: deploying examples.orders; give --app NAME for your own"
    assert announcement(example, is_named=False) == expected
    assert announcement(example, is_named=True) == "deploying examples.orders"
    (tmp_path / "app.py").touch()
    assert announcement(Application.of(None, tmp_path), is_named=False) == "deploying app"


def test_changes_are_noticed_and_a_module_that_is_gone_for_a_while_ends_nothing(tmp_path: Path) -> None:
    app, said = tmp_path / "app.py", list[str]()
    app.write_text(APP)
    watch = Watch(Application.of(None, tmp_path), said.append)
    assert not watch.has_changed()
    (tmp_path / "requirements.txt").write_text("tabulate\n")
    assert watch.has_changed()
    app.unlink()
    assert not watch.has_changed()
    assert not watch.has_changed()
    assert [line.startswith("There is no module app in") for line in said] == [True]
    app.write_text(f"{APP}\n")
    assert watch.has_changed()
    assert not watch.has_changed()
