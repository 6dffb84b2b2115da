"""`json://DIR`: the records of that directory, in a database of evalve's instead of JSON files."""

from __future__ import annotations

from pathlib import Path

from doteval.storage.recorded import RecordedStorage

__all__ = ["JSONStorage"]


class JSONStorage(RecordedStorage):
    """The records in `DIR/evalve.db`; `evalve export` writes them as JSON."""

    def __init__(self, storage_path: str | Path = ".doteval") -> None:
        self.root_dir = Path(storage_path)
        self.root_dir.mkdir(parents=True, exist_ok=True)
        super().__init__(f"json://{self.root_dir.absolute()}")
