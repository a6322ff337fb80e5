"""The linters and type checkers, each a command that must end well: `./dev lint [--fix]`."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent

# What mypy reads; pyright's list is in pyproject.toml. Test modules are typed by whoever calls them: pytest.
TYPED = ("src", "tools", "dev", "tests/typing", "examples", "benchmarks", "torture")


@dataclass(frozen=True, slots=True)
class Check:
    """One command; it fails with a status other than 0."""

    name: str
    command: tuple[str, ...]
    kind: Literal["check", "tests", "program"] = "check"  # who counts: one check is one, or what it tells


def lint() -> list[Check]:
    """What reads the code's form."""
    ruff = (sys.executable, "-m", "ruff")
    return [Check("ruff check", (*ruff, "check", "--quiet", ".")), Check("ruff format", (*ruff, "format", "--diff", "--quiet", "."))]


def types() -> list[Check]:
    """What reads the code's meaning."""
    present = [path for path in TYPED if (ROOT / path).is_file() or any((ROOT / path).rglob("*.py"))]
    return [
        Check("mypy", (sys.executable, "-m", "mypy", "--scripts-are-modules", "--no-error-summary", *present)),
        Check("pyright", (sys.executable, "-m", "pyright", "--pythonpath", sys.executable)),
    ]


def repair() -> list[Check]:
    """What mends the form by itself."""
    ruff = (sys.executable, "-m", "ruff")
    return [Check("ruff check --fix", (*ruff, "check", "--quiet", "--fix", ".")), Check("ruff format", (*ruff, "format", "--quiet", "."))]


def main(arguments: Sequence[str]) -> int:
    """Run all, and say which failed."""
    if set(arguments) - {"--fix"}:
        print("usage: ./dev lint [--fix]", file=sys.stderr)
        return 2
    checks = [*repair(), *types()] if arguments else [*lint(), *types()]
    environ = dict(os.environ, PYRIGHT_PYTHON_IGNORE_WARNINGS="1")
    failed = [check.name for check in checks if subprocess.run(check.command, cwd=ROOT, env=environ, check=False).returncode]
    print(f"failed: {', '.join(failed)}" if failed else f"{', '.join(check.name for check in checks)}: nothing to say")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
