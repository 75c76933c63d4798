from __future__ import annotations

from engine.location import LoopIteration, is_prefix, render


def test_a_location_renders_as_a_path() -> None:
    names = ["outer", "inner", "step"]
    assert render((), names) == ""
    assert render((0,), names) == "outer"
    assert render((0, LoopIteration(0, 3), 1), names) == "outer/~3/inner"
    assert render((0, LoopIteration(0, 3), 1, LoopIteration(1, 0), 2), names) == "outer/~3/inner/~0/step"


def test_a_name_that_the_registry_lacks_shows_as_its_index() -> None:
    assert render((0, 7), ["a"]) == "a/#7"
    assert render((0,), []) == "#0"


def test_a_location_is_a_prefix_of_itself_and_of_what_lies_below() -> None:
    loop = (1, LoopIteration(1, 2))
    assert is_prefix((), ())
    assert is_prefix((), loop)
    assert is_prefix(loop, loop)
    assert is_prefix(loop, (*loop, 5))
    assert is_prefix((1,), loop)
    assert not is_prefix(loop, (1,))
    assert not is_prefix(loop, (1, LoopIteration(1, 3), 5))
    assert not is_prefix((1, 2), (1, LoopIteration(1, 2)))


def test_a_loop_iteration_is_no_pair_of_names() -> None:
    assert not is_prefix((1, 2), (LoopIteration(1, 2),))
    assert LoopIteration(loop=1, iteration=2) == LoopIteration(1, 2)
