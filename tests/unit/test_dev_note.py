"""The note of ``torpor dev``, where somebody has been at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "7",
        "{}",
        "no json",
        '{"endpoint": 7, "host": "h", "pid": 1, "outputs": {}}',
        '{"endpoint": "http://127.0.0.1:9", "host": "h", "pid": "1", "outputs": {}}',
        '{"endpoint": "http://127.0.0.1:9", "host": null, "pid": 1, "outputs": {}}',
        '{"endpoint": "http://127.0.0.1:9", "host": "h", "pid": 1, "outputs": []}',
        '{"endpoint": "http://127.0.0.1:9", "host": "h", "pid": 4611686018427387904, "outputs": {}}',
        '{"endpoint": "http://127.0.0.1:port", "host": "h", "pid": 1, "outputs": {}}',
        '{"endpoint": "http://127.0.0.1:9", "host": "h", "pid": -1, "outputs": {}}',
    ],
)
def test_a_note_that_says_nothing_is_none(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".torpor").mkdir()
    (tmp_path / ".torpor" / "dev.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main(["get", "x"])
    assert exit_.value.code == 1
    assert "No `torpor dev` runs here" in capsys.readouterr().err
