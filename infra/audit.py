"""``make audit``: the template against the rules of checkov, and what we depend on against the known vulnerabilities.

The rules come with checkov. The vulnerabilities come from the package index; where that cannot be asked, this is said,
and the audit goes on without: an index that is out of reach must not keep anyone from working.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from infra.place import LOCKS, ROOT

BIN = ROOT / ".venv-audit" / "bin"

AUDITED = ("runtime", "dev", "ministack", "sam", "audit")
"""The locks whose packages are looked up; what is deployed comes first."""

TIMEOUT_S = 120
"""Seconds that one lock may take. Design choice: it is one question for each package."""


def main() -> None:
    """Audit, and exit with 1 where something was found."""
    is_sound = template()
    for name in AUDITED:
        is_sound = dependencies(name) and is_sound
    sys.exit(0 if is_sound else 1)


def template() -> bool:
    """Whether template.yaml breaks no rule that .checkov.yaml does not argue away."""
    environment = {**os.environ, "LOG_LEVEL": "ERROR"}  # noqa: TID251 - what it runs needs a PATH
    found = subprocess.run([BIN / "checkov", "--config-file", ".checkov.yaml"], cwd=ROOT, env=environment, check=False)
    print("template.yaml:", "sound" if found.returncode == 0 else "see above")
    return found.returncode == 0


def dependencies(name: str) -> bool:
    """Whether no package of a lock has a known vulnerability, as far as that can be found out."""
    options = ["--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off", "--timeout", "10"]
    command = [str(BIN / "pip-audit"), "--requirement", str(LOCKS / f"{name}.txt"), *options]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        told = json.loads(answer.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        print(f"{name}: not audited, the index cannot be asked")
        return True
    faults = vulnerable(told)
    known = sum("vulns" in package for package in told)
    print(f"{name}: {known} of {len(told)} packages could be looked up, {len(faults)} vulnerable")
    for fault in faults:
        print(f"  {fault}")
    return not faults


def vulnerable(told: list[dict[str, Any]]) -> list[str]:
    """One line for each package of pip-audit's answer that has a known vulnerability."""
    return [
        f"{package['name']} {package['version']}: {', '.join(fault['id'] for fault in package['vulns'])}"
        for package in told
        if package.get("vulns")
    ]


if __name__ == "__main__":
    main()
