"""Warnings that pytest would swallow are heard, each kind once."""

from __future__ import annotations

import logging

from evalve.gate.ungated import Ungated
from evalve.plugin.heard_warnings import HeardWarnings
from evalve.show.pytest_summary import warning_lines

LOG = logging.getLogger("evalve.gate.somewhere")


def test_warnings_of_one_kind_are_told_once_with_their_number() -> None:
    heard = HeardWarnings()

    with heard.listening():
        LOG.warning("the entry %s is damaged", "a")
        LOG.warning("the entry %s is damaged", "b")
        LOG.warning("%s: %s", "cache", "cannot be used")
        LOG.warning("%s: %s", "cache", "is full")
        LOG.info("nothing to worry about")

    assert list(warning_lines(heard.taken())) == [
        "warning: the entry a is damaged (and 1 more of this kind)",
        "warning: cache: cannot be used",
        "warning: cache: is full",
    ]


def test_what_was_taken_is_not_given_again() -> None:
    heard = HeardWarnings()
    with heard.listening():
        LOG.warning("once")
        heard.taken()

    assert heard.taken() == []


def test_nothing_is_heard_after_the_end_or_from_others() -> None:
    heard = HeardWarnings()
    with heard.listening():
        logging.getLogger("another").warning("not ours")
    LOG.warning("too late")

    assert heard.taken() == []


def test_the_same_kind_from_several_processes_is_one_line() -> None:
    warned = [("kind", "first", 2), ["kind", "second", 1], ["other", "third", 1]]

    assert list(warning_lines(warned)) == ["warning: first (and 2 more of this kind)", "warning: third"]


def test_a_host_that_several_processes_call_ungated_is_told_of_once() -> None:
    warned = []
    for url in ("http://a%25/completion", "http://a%25/generate", "http://b/generate"):
        heard = HeardWarnings()
        with heard.listening():
            Ungated().tell(url)
        warned += heard.taken()

    assert [line.split()[3] for line in warning_lines(warned)] == ["a%25/completion", "b/generate"]
