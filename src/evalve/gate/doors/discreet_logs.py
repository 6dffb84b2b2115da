"""Keeps keys out of what `httpx` and `httpx2` log: each request with its whole address, at level INFO."""

from __future__ import annotations

import logging

from evalve.secrecy import without_credentials


class _WithoutKeys(logging.Filter):
    """Shows neither the query of an address nor the user in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_discreet(each) for each in record.args)
        return True


def _discreet(value: object) -> object:
    """An address is an object of the library's own, which shows itself when it is written."""
    if type(value).__name__ == "URL" or (isinstance(value, str) and "://" in value):
        return without_credentials(str(value))
    return value


_FILTER = _WithoutKeys()


def hide_keys_in_log_of(library: str) -> None:
    """From now on; a second time changes nothing."""
    logging.getLogger(library).addFilter(_FILTER)
