"""Tables line up whatever the text, and no text can drive the terminal."""

from __future__ import annotations

import pytest

from evalve.show.tables import Column, block, shortened, table, visible, width_of


def test_columns_line_up_under_their_titles() -> None:
    lines = table(
        [Column("name"), Column("n", align="right")],
        [["alpha", "1"], ["be", "1000"]],
    )

    assert lines == [
        "name      n",
        "─────  ────",
        "alpha     1",
        "be     1000",
    ]


def test_wide_and_combining_characters_count_as_the_cells_they_take() -> None:
    lines = table([Column("name"), Column("n")], [["日本", "1"], ["e\u0301t", "2"], ["abcd", "3"]])

    assert lines[2:] == ["日本  1", "e\u0301t    2", "abcd  3"]


def test_a_table_that_is_too_wide_takes_the_room_from_its_widest_flexible_column() -> None:
    lines = table(
        [Column("id"), Column("text", flexible=True, minimum=6)],
        [["sample-1", "a long text that does not fit"]],
        width=20,
    )

    assert lines == [
        "id        text",
        "────────  ──────────",
        "sample-1  a long te…",
    ]


def test_a_column_is_never_narrower_than_its_minimum() -> None:
    lines = table([Column("t", flexible=True, minimum=6)], [["abcdefghij"]], width=3)

    assert lines[2] == "abcde…"


def test_optional_columns_are_left_out_one_after_another_where_room_is_short() -> None:
    columns = [Column("name"), Column("count", optional=True), Column("when", optional=True)]
    row = ["2026-11-15_13-13-08_1f82", "12", "today"]

    assert table(columns, [row], width=38)[2] == "2026-11-15_13-13-08_1f82  12     today"
    assert table(columns, [row], width=37)[2] == "2026-11-15_13-13-08_1f82  today"
    assert table(columns, [row], width=30)[2] == "2026-11-15_13-13-08_1f82"


def test_a_name_is_not_cut_however_narrow_the_terminal() -> None:
    lines = table(
        [Column("name"), Column("text", flexible=True)], [["experiment-of-monday", "a text"]], width=10
    )

    assert lines[2] == "experiment-of-monday  a text"


def test_a_table_without_rows_is_its_header() -> None:
    assert table([Column("a"), Column("bc")], [], indent="  ") == ["  a  bc", "  ─  ──"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("line one\nline two", r"line one\nline two"),
        ("bell\x07 and \x9b31m", r"bell\x07 and \x9b31m"),
        ("abc\u202ecba", r"abc\u202ecba"),
        ("half a pair \ud800", r"half a pair \ud800"),
        ("[bold]markup[/bold] <b>", "[bold]markup[/bold] <b>"),
        ("héllo 日本 👍", "héllo 日本 👍"),
    ],
)
def test_control_characters_are_written_out_and_the_rest_is_left_alone(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_cell_with_an_escape_sequence_is_as_wide_as_it_is_shown() -> None:
    lines = table([Column("a"), Column("b")], [["\x1b[0m", "x"], ["12345678", "y"]])

    assert lines[2:] == [r"\x1b[0m   x", "12345678  y"]


def test_shortening_counts_cells_and_leaves_short_text_alone() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "ab…"
    assert shortened("日本語", 5) == "日本…"
    assert shortened("日本語", 4) == "日…"
    assert width_of("日本語") == 6


def test_a_block_keeps_its_lines_but_not_its_escape_sequences() -> None:
    assert block("one\n\ttwo\x1b[1m", indent="  ") == ["  one", "      two\\x1b[1m"]
