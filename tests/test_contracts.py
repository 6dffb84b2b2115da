"""What calls came to, by role."""

from __future__ import annotations

from evalve.contracts import SAMPLE, CallLog, SampleContext, all_roles, in_role, split_roles


def test_calls_of_a_judge_are_in_none_of_the_figures() -> None:
    log = CallLog(requests=3, cost_usd=0.5)
    log.in_role("judge").requests += 2

    plain = log.to_plain()

    assert (plain["requests"], plain["judge.requests"]) == (3, 2)
    assert split_roles(plain)["judge"]["requests"] == 2
    assert split_roles(plain)[""]["requests"] == 3
    assert all_roles(plain)["requests"] == 5


def test_calls_of_other_roles_are_parts_of_the_figures() -> None:
    log = CallLog()
    for role, tokens, cost_usd in [("student", 30, 0.25), ("teacher", 12, 0.5), ("judge", 5, 1.0)]:
        for each in log.counting(role):
            each.input_tokens += tokens
            each.cost_usd += cost_usd

    plain = log.to_plain()

    by_role = {role: made["input_tokens"] for role, made in split_roles(plain).items()}
    assert by_role == {"": 42, "student": 30, "teacher": 12, "judge": 5}
    assert all_roles(plain)["input_tokens"] == 47
    assert log.spent_usd() == 1.75


def test_parts_of_a_cost_sum_to_the_whole_in_whatever_order_calls_were_made() -> None:
    log = CallLog()
    for role, cost_usd in [("student", 0.1), ("teacher", 0.1), ("student", 0.1), ("teacher", 0.6)]:
        for each in log.counting(role):
            each.cost_usd += cost_usd

    plain = log.to_plain()

    assert plain["cost_usd"] == plain["student.cost_usd"] + plain["teacher.cost_usd"]


def test_what_was_recorded_by_role_is_added_once() -> None:
    earlier, log = CallLog(), CallLog()
    for each in earlier.counting("teacher"):
        each.requests += 2

    log.add_plain(earlier.to_plain())
    log.add(earlier)

    assert (log.requests, log.roles["teacher"].requests) == (4, 4)


def test_what_was_added_since_is_told_by_role() -> None:
    before, now, total = CallLog(requests=1), CallLog(requests=3), CallLog()
    before.in_role("judge").requests = 1
    now.in_role("judge").requests = 5

    added = now.since(before)
    total.add(added)
    total.add(added)

    assert (added.requests, added.roles["judge"].requests) == (2, 4)
    assert (total.requests, total.roles["judge"].requests) == (4, 8)


def test_a_log_with_calls_of_a_judge_alone_is_not_empty() -> None:
    log = CallLog()
    assert not log.made_any

    log.in_role("judge").cached += 1

    assert log.made_any


def test_in_a_role_the_sample_stays_the_same() -> None:
    sample = SampleContext("exp", "eval", "s1", 0, 1)
    token = SAMPLE.set(sample)
    try:
        with in_role("judge"):
            inside = SAMPLE.get()
        assert SAMPLE.get() is sample
    finally:
        SAMPLE.reset(token)

    assert inside is not None
    assert (inside.sample_id, inside.role) == ("s1", "judge")
    assert inside.calls is sample.calls
