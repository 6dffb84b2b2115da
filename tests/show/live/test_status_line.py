"""What the one line about a running evaluation says, and what it leaves out when there is no room."""

from __future__ import annotations

import pytest

from evalve.contracts import Tally
from evalve.show.live.status_line import (
    Pace,
    Style,
    Usage,
    _waiting,
    columns,
    duration,
    last_line,
    plain_line,
    status_line,
)

USAGE = Usage(cpu_percent=34.4, memory_bytes=87_000_000)


def a_tally(evaluation: str = "eval_math", total: int | None = 1000, done: int = 409) -> Tally:
    return Tally("x", evaluation, started_s=0.0, total=total, done=done, failed=3, in_flight=10)


def line(tally: Tally, *, width: int = 200, rate_per_s: float = 38.2, style: Style | None = None) -> str:
    return status_line(
        tally, now_s=11.0, width=width, rate_per_s=rate_per_s, usage=USAGE, style=style or Style()
    )


def test_a_wide_line_says_everything() -> None:
    tally = a_tally()
    tally.waiting = {"retry": 2, "limit": 0}

    assert line(tally) == (
        "eval_math  ━━━━━━━━────────────  412/1000 41%  38.2/s  ETA 0:15  10 in flight  3 failed"
        "  waiting: retry 2  cpu 34% mem 87 MB"
    )


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (79, "eval_math  412/1000 41%  38.2/s  ETA 0:15  10 in flight  3 failed  cpu 34% 87MB"),
        (65, "eval_math  412/1000 41%  38.2/s  ETA 0:15  10 in flight  3 failed"),
        (60, "eval_math  412/1000 41%  ETA 0:15  10 in flight  3 failed"),
        (45, "eval_math  412/1000 41%  ETA 0:15  3 failed"),
        (35, "eval_math  412/1000 41%  3 failed"),
        (22, "eval_ma…  412/1000 41%"),
        (15, "eval_ma…  ━━───"),
        (12, "eval_ma…"),
        (4, "eva…"),
        (0, ""),
    ],
)
def test_the_least_important_goes_first_when_room_is_short(width: int, expected: str) -> None:
    assert line(a_tally(), width=width) == expected


def test_what_it_waits_for_is_said_before_how_many_are_in_flight() -> None:
    tally = a_tally("eval_concurrent_sentiment")
    tally.waiting = {"retry": 2}

    assert line(tally, width=80) == (
        "eval_concurrent_sentiment  412/1000 41%  ETA 0:15  3 failed  waiting: retry 2"
    )


def test_what_each_role_cost_is_told_where_there_is_room() -> None:
    tally = a_tally()
    tally.spent = lambda: "0.310 USD (student 0.110, teacher 0.200)"

    assert "0.310 USD (student 0.110, teacher 0.200)" in line(tally, width=150)
    assert "  0.310 USD" in line(tally, width=85)


@pytest.mark.parametrize("width", range(0, 130))
def test_a_line_never_exceeds_its_width(width: int) -> None:
    tally = a_tally("eval_数学の問題をたくさん解く[モデル]")
    tally.waiting = {"retry": 2}

    assert columns(line(tally, width=width)) <= width


def test_a_wide_character_counts_as_two_columns_and_a_combining_mark_as_none() -> None:
    assert columns("数学") == 4
    assert columns("e\u0301") == 1


def test_an_unknown_total_has_neither_bar_nor_eta_but_the_time_passed() -> None:
    assert line(a_tally(total=None), width=50) == "eval_math  412 done  0:11  10 in flight  3 failed"


def test_what_an_earlier_run_did_counts_as_done() -> None:
    tally = a_tally(done=97)
    tally.skipped = 400

    assert "500/1000 50%" in line(tally)


def test_failures_are_told_by_class_and_skips_apart() -> None:
    tally = a_tally(done=400)
    tally.failures, tally.skipped_now = {"timeout": 1, "provider": 2}, 9

    assert "412/1000 41%" in line(tally), "a skipped sample has ended, too"
    assert "  3 failed (2 provider, 1 timeout)  9 skipped" in line(tally)
    assert line(tally, width=80).endswith("10 in flight  3 failed  9 skipped"), "a narrow line has no classes"
    assert "3 failed (2 provider, 1 timeout), 9 skipped, " in plain_line(tally, now_s=11.0, rate_per_s=1.0)
    assert "3 failed (2 provider, 1 timeout), 9 skipped, took" in last_line(tally, now_s=11.0)


def test_the_eta_counts_only_what_is_left() -> None:
    tally = a_tally(done=97)
    tally.skipped = 400

    assert "ETA 0:50" in line(tally, rate_per_s=10.0)


def test_a_hundred_percent_is_said_only_at_the_end() -> None:
    assert "1999/2000 99%" in line(a_tally(total=2000, done=1996))
    assert "2000/2000 100%" in line(a_tally(total=2000, done=1997))


def test_an_empty_dataset_is_complete() -> None:
    assert "0/0 100%" in line(Tally("x", "eval_math", started_s=0.0, total=0))


def test_a_stopping_run_says_what_it_waits_for_and_how_to_hurry_it() -> None:
    tally = a_tally()
    tally.stopping, tally.in_flight = True, 4

    assert line(tally, width=95) == (
        "eval_math  412/1000 41%  stopping, waiting for 4 in flight (Ctrl-C again to cancel)  3 failed"
    )


def test_a_stopping_run_says_it_in_fewer_words_when_room_is_short() -> None:
    tally = a_tally()
    tally.stopping, tally.in_flight = True, 4

    assert line(tally, width=60) == "eval_math  412/1000 41%  stopping, 4 in flight  3 failed"


def test_a_terminal_without_unicode_gets_ascii() -> None:
    shown = line(a_tally("eval_数学_and_more_of_it_all_day_long"), width=100, style=Style(unicode=False))

    assert shown.isascii()
    assert shown.startswith("eval_??_and_more_of_it_all_day_l~  ##---  412/1000")


def test_colours_take_no_room() -> None:
    shown = line(a_tally(), width=65, style=Style(colour=True))

    assert shown == "eval_math  412/1000 41%  38.2/s  ETA 0:15  10 in flight  \x1b[31m3 failed\x1b[0m"


def test_control_characters_in_a_name_do_not_reach_the_terminal() -> None:
    assert line(a_tally("eval\n\x1b[2J"), width=33).startswith("eval  [2J")


def test_the_line_for_a_log() -> None:
    tally = Tally("x", "eval_math", started_s=0.0, total=1000, done=248, failed=2, in_flight=10)

    assert plain_line(tally, now_s=6.0, rate_per_s=38.2) == (
        "evalve eval_math: 250/1000 (25%), 38.2/s, 2 failed, 10 in flight, ETA 0:20"
    )


def test_the_line_for_a_log_where_the_total_is_unknown() -> None:
    tally = Tally("x", "eval_math", started_s=0.0, done=250, in_flight=10, waiting={"retry": 3})

    assert plain_line(tally, now_s=60.0, rate_per_s=None) == (
        "evalve eval_math: 250 done, 10 in flight, waiting: retry 3, 1:00 so far"
    )


def test_the_last_line_for_a_log_gives_the_average_rate_of_this_run() -> None:
    tally = Tally("x", "eval_math", started_s=10.0, total=1000, skipped=500, done=498, failed=2)

    assert last_line(tally, now_s=35.0) == "evalve eval_math: 1000/1000 (100%), 20.0/s, 2 failed, took 0:25"


def test_the_last_line_of_a_stopped_run_says_so() -> None:
    tally = Tally("x", "eval_math", started_s=0.0, total=1000, done=250, stopping=True)

    assert last_line(tally, now_s=25.0) == "evalve eval_math: 250/1000 (25%), 10.0/s, stopped after 0:25"


@pytest.mark.parametrize(
    ("rate_per_s", "expected"), [(2345.6, "2346/s"), (1.0, "1.0/s"), (0.2, "12.0/min"), (0.01, "36.0/h")]
)
def test_a_slow_rate_is_told_per_minute_or_hour(rate_per_s: float, expected: str) -> None:
    assert f"  {expected}  " in line(a_tally(), rate_per_s=rate_per_s)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.2, "0:00"), (15, "0:15"), (59.7, "1:00"), (3723, "1:02:03"), (183_600, "2d 3h"), (-1, "0:00")],
)
def test_durations(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_the_pace_forgets_what_is_older_than_ten_seconds() -> None:
    pace = Pace(started_s=0.0)
    for second in range(1, 31):
        pace.rate_per_s(100 * second, now_s=float(second))
    for second in range(31, 51):
        pace.rate_per_s(2700 + 10 * second, now_s=float(second))

    assert pace.rate_per_s(3200, now_s=50.0) == pytest.approx(10.0)


def test_the_pace_falls_while_nothing_ends() -> None:
    pace = Pace(started_s=0.0)
    pace.rate_per_s(100, now_s=10.0)

    assert pace.rate_per_s(100, now_s=50.0) == pytest.approx(2.0)


def test_the_pace_of_slow_attempts_looks_further_back() -> None:
    pace = Pace(started_s=0.0)
    for minute in range(1, 31):
        pace.rate_per_s(minute, now_s=60.0 * minute)

    assert pace.rate_per_s(30, now_s=1800.0) == pytest.approx(1 / 60)
    assert len(pace.points) <= 12


def test_there_is_no_pace_before_the_first_end() -> None:
    assert Pace(started_s=0.0).rate_per_s(0, now_s=5.0) is None


def test_who_waits_for_a_batch_is_told_for_which_and_since_when() -> None:
    tally = Tally("e", "eval_x", started_s=0.0, total=300, waiting={"a batch": 299, "retry": 1})
    tally.held_by = lambda: "299 for msgbatch_01, submitted 12 min ago"
    assert _waiting(tally) == "299 for msgbatch_01, submitted 12 min ago, retry 1"
