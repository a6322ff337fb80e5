"""What others may use is a list in a file: a change of it is a line in the diff."""

import difflib

from tools import public_api


def test_the_public_api_is_as_its_list_says() -> None:
    listed = public_api.FILE.read_text(encoding="utf-8") if public_api.FILE.exists() else ""
    changes = list(difflib.unified_diff(listed.splitlines(), public_api.text().splitlines(), "listed", "in the source", lineterm="", n=1))
    assert not changes, "\n".join(["the public API has changed; if that is meant: ./dev docs --write", *changes])
