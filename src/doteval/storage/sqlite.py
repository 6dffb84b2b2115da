"""`sqlite://FILE`: the records in that file, in evalve's format."""

from __future__ import annotations

from pathlib import Path

from doteval.storage.recorded import RecordedStorage

__all__ = ["SQLiteStorage"]


class SQLiteStorage(RecordedStorage):
    """The records in one file."""

    def __init__(self, db_path: str | Path = "evaluations.db") -> None:
        self.db_path = Path(db_path)
        super().__init__(f"sqlite:///{self.db_path.absolute()}")
