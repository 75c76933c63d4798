"""Runs MiniStack so that it never outlives whoever started it; not imported, but run by MiniStack's own interpreter.

Arguments: the folder for everything temporary, removed at the end. Standard input is the starter's lifeline: when it
closes, for whatever reason, MiniStack is told to stop.
"""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import sys
import threading


def _stop_with_starter() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run MiniStack until it is told to stop, then remove its folder."""
    folder = sys.argv[1]
    sys.argv = ["ministack"]
    threading.Thread(target=_stop_with_starter, daemon=True).start()
    try:
        runpy.run_module("ministack", run_name="__main__")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
