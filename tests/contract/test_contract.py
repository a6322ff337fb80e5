"""The contract, on every store of ours. `conftest.py` says which, and what their clients can do to them."""

from soloist.testing.contract import *  # noqa: F403 - the cases and their fixtures: that is how a store of somebody else's runs them
