"""Three hundred worlds, each by a seed: random workflows, traffic and faults, under a checker a law."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest

from tests.simulation.run import Case, play, told

SEEDS = 300
CHUNKS = 10


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_law_is_broken(chunk: int) -> None:
    for seed in range(chunk * SEEDS // CHUNKS, (chunk + 1) * SEEDS // CHUNKS):
        case = Case(seed=seed)
        if play(case).breach is not None:
            pytest.fail(told(case), pytrace=False)


def trace_of(seed: int) -> str:
    trace = play(Case(seed=seed), is_traced=True).trace
    return hashlib.sha256(json.dumps(trace).encode()).hexdigest()


PROGRAM = "import sys; from tests.simulation.test_simulation import trace_of; print(trace_of(int(sys.argv[1])))"


@pytest.mark.parametrize("seed", [11, 32])
def test_a_seed_is_the_same_world_in_any_process(seed: int) -> None:
    traces = {trace_of(seed), trace_of(seed)}
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-c", PROGRAM, str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": hash_seed})
        traces.add(done.stdout.strip())
    assert len(traces) == 1
