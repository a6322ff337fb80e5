"""`./dev contract [pytest's options]`: the rules of the contract on every store; a plugin of theirs prints the table."""

import os
import subprocess
import sys
from collections.abc import Sequence

from tools.lint import ROOT
from tools.screen import Screen
from tools.suite import PARTS, server_for


def main(arguments: Sequence[str]) -> int:
    """Run them, and say what pytest says."""
    parts = [part for part in PARTS if part.name == "contract"]
    command = [sys.executable, "-m", "pytest", "--quiet", "--matrix", *(part.folder for part in parts), *arguments]
    with server_for(parts, Screen()):
        return subprocess.run(command, cwd=ROOT, env=os.environ, stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
