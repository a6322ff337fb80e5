"""A store of somebody else's, which joins through the entry point group `soloist.stores`."""

from __future__ import annotations

import pytest

from soloist import ConfigError, Soloist


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution with a store, as pip would lay it out."""
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[soloist.stores]\ntheirs = their_store\n")
    (tmp_path / "their_store.py").write_text(
        "from soloist.stores.memory import MemoryStore, Shared\n"
        "SHARED = Shared()\n"
        "def connect(url, namespace, *, aio):\n"
        "    return MemoryStore(SHARED, aio=aio)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def test_its_scheme_opens_it(installed):
    with Soloist("theirs://anywhere").lock("k") as hold:
        assert hold.fence


def test_without_it_the_known_schemes_are_named():
    with pytest.raises(ConfigError, match=r"'theirs': use one of memory://, sqlite://, redis://"):
        Soloist("theirs://anywhere")
