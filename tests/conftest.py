"""Fixtures that every folder of tests may use."""

from collections.abc import Generator

import pytest

from tools import servers
from tools.binaries import ServerNotHadError


@pytest.fixture(scope="session")
def redis_url() -> Generator[str]:
    """A Redis for this run: the one that SOLOIST_TEST_REDIS_URL names, else one that ends with the run."""
    try:
        with servers.redis_url() as url:
            yield url
    except ServerNotHadError as error:
        pytest.skip(f"{servers.NO_SERVER}{error}")
