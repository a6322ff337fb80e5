"""What there is to know of a store under test, and of how it can be broken."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from soloist import SoloistError
from soloist.testing.contract import Subject

SECRET = "s3cr3t-w0rd"
"""A password, which no message may show."""


class Broken(NamedTuple):
    """A store that can't work: what makes one and answers with its URL, what its users get, and what they are told."""

    make: Callable[[Path, ExitStack], str]
    error: type[SoloistError]
    says: tuple[str, ...]


class Kind(Protocol):
    """What a file of this folder offers."""

    SHARED: bool
    """Whether processes share one."""

    BROKEN: Mapping[str, Broken]
    """The ways in which its users can find it broken; one with "under our key" in its name breaks one key alone."""

    def url(self, request: pytest.FixtureRequest, folder: Path) -> str:
        """Where one is. Nobody else uses the folder, nor its name; a server may be in use."""
        ...

    def subject(self, url: str) -> AbstractContextManager[Subject]:
        """The same for the contract: what its own client can do to it."""
        ...
