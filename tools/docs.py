"""`./dev docs`: check that the pages are whole and that their examples run. `--write`: write what is generated."""

import sys
from collections.abc import Sequence

from tools import public_api, suite, tables


def main(arguments: Sequence[str]) -> int:
    """Check, or write."""
    if list(arguments) == ["--write"]:
        public_api.write()
        tables.write()
        return 0
    if arguments:
        print("usage: ./dev docs [--write]", file=sys.stderr)
        return 2
    return suite.main(["docs", "house", "-k", "docs"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
