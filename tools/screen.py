"""What `./dev test` shows: one line that is rewritten on a terminal, a plain line now and then elsewhere."""

import shutil
import sys
import time

EVERY = 30.0  # seconds between two plain lines about a part that is still running


class Screen:
    """The output. `progress` is passing, `line` stays."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._next_plain = 0.0
        self._shown = False

    def begin(self) -> None:
        """A part begins."""
        self._next_plain = time.monotonic() + EVERY

    def progress(self, head: str, done: int, total: int, tail: str) -> None:
        """How far a part is; `total` is 0 as long as nobody knows."""
        count = f"{done}/{total}" if total else str(done or "")
        if self.is_terminal:
            width = 24
            filled = width * min(done, total) // total if total else 0
            text = f"{head}  {'█' * filled}{'░' * (width - filled)} {count}  {tail}"
            sys.stdout.write(f"\r\x1b[2K{text[: shutil.get_terminal_size().columns - 1]}")
            sys.stdout.flush()
            self._shown = True
        elif time.monotonic() >= self._next_plain:
            self._next_plain += EVERY
            self.line(f"{head}  {count}  {tail}")

    def line(self, text: str = "") -> None:
        """A line that stays."""
        if self._shown:
            sys.stdout.write("\r\x1b[2K")
            self._shown = False
        print(text, flush=True)
