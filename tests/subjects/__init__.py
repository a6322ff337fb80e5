"""What the tests know of each store: a file per line of the table of stores, named as its module; `_kind.py` says what it holds.

The contract, the faces, the random programs and the real processes run on whatever stands here.
"""

from importlib import import_module
from typing import cast

from soloist.stores import TABLE
from tests.subjects._kind import SECRET, Broken, Kind

__all__ = ["KINDS", "SECRET", "SHARED", "STORES", "Broken", "Kind"]

KINDS = {family.module: cast("Kind", import_module(f"tests.subjects.{family.module}")) for family in TABLE}
STORES = tuple(KINDS)
SHARED = tuple(name for name, kind in KINDS.items() if kind.SHARED)
"""Those that several processes share."""
