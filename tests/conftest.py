"""Puts this directory on the import path, so that tests share their helpers."""
