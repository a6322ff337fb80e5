"""What the SQLite store stands on: the file, and the host it lies on. `soloist/stores/sqlite.py` is the store."""
