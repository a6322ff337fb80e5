"""`./dev bench NAME [...]`: run benchmarks/NAME.py with the rest of the arguments."""

import os
import subprocess
import sys
from collections.abc import Sequence

from tools.lint import ROOT

FOLDER = ROOT / "benchmarks"


def main(arguments: Sequence[str]) -> int:
    """Run one, or say which there are; 2 if it isn't there."""
    names = sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))
    if not arguments or arguments[0] not in names:
        print(f"usage: ./dev bench {'|'.join(names) or '... (not there yet)'}", file=sys.stderr)
        return 2
    command = [sys.executable, str(FOLDER / f"{arguments[0]}.py"), *arguments[1:]]
    return subprocess.run(command, env=os.environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
