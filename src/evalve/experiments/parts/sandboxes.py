"""`sandboxes:` of the file: what samples are lent, made as the file says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalve.errors import OptionError
from evalve.experiments.file.configuration import FILE_NAME, read_configuration
from evalve.experiments.file.document import Document
from evalve.experiments.file.variables import expanded
from evalve.secrecy import Environment

if TYPE_CHECKING:
    from evalve.sandboxes.postgresql.lender import Postgres

_EXAMPLE = "sandboxes:\n  postgres:\n    schema: schema.sql\n    seed: seed.sql"


def postgres_of_project(folder: Path) -> Postgres:
    """What the file of the project around `folder` says of `sandboxes.postgres`."""
    return postgres_in(read_configuration(folder).document)


def postgres_in(document: Document | None) -> Postgres:
    entry = None if document is None else document.section("sandboxes").get("postgres")
    if document is None or entry is None:
        where = FILE_NAME if document is None else str(document.path)
        raise OptionError(f"{where} does not say which database to lend; write:\n\n{_EXAMPLE}")
    from evalve.sandboxes import postgres  # its driver is an optional package

    place = document.place("sandboxes", "postgres")
    said: dict[str, Any] = expanded(
        {key: value for key, value in entry.items() if value is not None and key != "description"},
        Environment(os.environ),
        where=str(place),
    )
    if isinstance(said.get("volatile"), str):
        said["volatile"] = [said["volatile"]]
    if said.get("url") is not None:
        said["url"] = str(said["url"])
    for key in ("schema", "seed"):
        if key in said:
            said[key] = (
                document.place("sandboxes", "postgres", key).path.parent / Path(said[key]).expanduser()
            )
    lender: Postgres = postgres(**said)
    return lender
