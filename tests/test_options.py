"""Options: how their text is read, how layers lie over each other."""

from __future__ import annotations

from typing import Any

import pytest

from evalve.errors import OptionError
from evalve.options import (
    OPTIONS,
    Options,
    Threshold,
    Tolerance,
    from_environment,
    from_mapping,
    merged,
    option_for,
    parse_text,
    parse_texts,
    read_threshold,
    said,
    suggestion,
)

A_GATE = "needs NAME=VALUE or NAME<=VALUE, as in accuracy=0.9, accuracy.low=0.85 or toxic<=0.1"


def _parsed(key: str, text: str) -> Any:
    option = option_for(key)
    assert option is not None
    return parse_text(option, text, said_by=f"--{option.name}")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("experiment", " first ", "first"),
        ("samples", "0", 0),
        ("samples", "+12", 12),
        ("max_concurrency", "auto", "auto"),
        ("max_concurrency", " 20 ", 20),
        ("throttle", "0.5", 0.5),
        ("timeout", "30", 30.0),
        ("repeat", "3", 3),
        ("order", "auto", "auto"),
        ("fail_under", "exact_match.accuracy=0.9", Threshold("exact_match.accuracy", 0.9)),
        ("fail_under", "pass@1 = -1", Threshold("pass@1", -1.0)),
        ("allow_failures", "3", Tolerance(count=3)),
        ("allow_failures", "2.5 %", Tolerance(share=0.025)),
        ("fresh", "yes", True),
        ("accept_changes", "off", False),
        ("storage", "memory://", "memory://"),
        ("progress", "plain", "plain"),
    ],
)
def test_text_of_an_option_is_read(key: str, text: str, value: Any) -> None:
    assert _parsed(key, text) == value


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (
            "experiment",
            "latest",
            "--experiment: needs a name that is not empty and not `latest`; got 'latest'",
        ),
        ("experiment", " ", "--experiment: needs a name that is not empty and not `latest`; got ' '"),
        ("samples", "-1", "--samples: needs a whole number, 0 or more; got '-1'"),
        ("samples", "1.0", "--samples: needs a whole number, 0 or more; got '1.0'"),
        ("repeat", "0", "--repeat: needs a whole number, 1 or more; got '0'"),
        (
            "max_concurrency",
            "0",
            "--max-concurrency: needs a whole number, 1 or more, or `auto`; got '0'",
        ),
        ("throttle", "-1", "--throttle: needs a number of seconds, 0 or more; got '-1'"),
        ("throttle", "nan", "--throttle: needs a number of seconds, 0 or more; got 'nan'"),
        ("timeout", "0", "--timeout: needs a number of seconds above 0; got '0'"),
        ("timeout", "inf", "--timeout: needs a number of seconds, 0 or more; got 'inf'"),
        ("order", "random", "--order: needs one of: auto, dataset; got 'random'"),
        (
            "fail_under",
            "accuracy",
            f"--fail-under: {A_GATE}; got 'accuracy'",
        ),
        (
            "fail_under",
            "=0.9",
            f"--fail-under: {A_GATE}; got '=0.9'",
        ),
        (
            "fail_under",
            "accuracy=nan",
            f"--fail-under: {A_GATE}; got 'accuracy=nan'",
        ),
        ("fail_under", "accuracy==0.9", f"--fail-under: {A_GATE}; got 'accuracy==0.9'"),
        (
            "allow_failures",
            "101%",
            "--allow-failures: needs a number of samples, as in 3, or a share of them, as in 5%; got '101%'",
        ),
        (
            "allow_failures",
            "some",
            "--allow-failures: needs a number of samples, as in 3, or a share of them, as in 5%; got 'some'",
        ),
        ("fresh", "maybe", "--fresh: needs true or false; got 'maybe'"),
    ],
)
def test_a_bad_value_names_the_option_the_need_and_the_value(key: str, text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        _parsed(key, text)

    assert str(caught.value) == message


def test_every_field_of_options_has_one_option() -> None:
    assert [option.field for option in OPTIONS] == list(Options.__dataclass_fields__)


def test_an_option_is_known_by_field_name_and_aliases() -> None:
    option = option_for("concurrent")

    assert option is not None
    assert option.keys == ("max_concurrency", "concurrency", "concurrent")
    assert option.env == "EVALVE_MAX_CONCURRENCY"


def test_the_environment_fills_options() -> None:
    options = from_environment(
        {
            "EVALVE_SAMPLES": "5",
            "EVALVE_FAIL_UNDER": "accuracy=0.9, mean=2",
            "EVALVE_FRESH": "1",
            "EVALVE_ORDER": "",
            "HOME": "/root",
        }
    )

    assert options == Options(
        samples=5, fail_under=(Threshold("accuracy", 0.9), Threshold("mean", 2.0)), fresh=True
    )


@pytest.mark.parametrize(
    ("texts", "gates"),
    [
        (["accuracy=0.5,exact_match=0.9"], {"accuracy": 0.5, "exact_match": 0.9}),
        (["accuracy=0.5, exact_match=0.9,", "mean=2"], {"accuracy": 0.5, "exact_match": 0.9, "mean": 2.0}),
        (["my score=0.5"], {"my score": 0.5}),
        (
            ["share_above(0.5, strict=True)=0.9,accuracy=0.5"],
            {"share_above(0.5, strict=True)": 0.9, "accuracy": 0.5},
        ),
    ],
)
def test_an_option_that_may_be_repeated_also_takes_several_values_by_commas(
    texts: list[str], gates: dict[str, float]
) -> None:
    option = option_for("fail_under")
    assert option is not None

    parsed = parse_texts(option, texts, said_by="--fail-under")

    assert parsed == tuple(Threshold(name, minimum) for name, minimum in gates.items())


@pytest.mark.parametrize(("text", "wrong"), [("accuracy=high,mean=2", "accuracy=high"), ("", ""), (",", ",")])
def test_the_one_of_several_values_that_is_wrong_is_named(text: str, wrong: str) -> None:
    option = option_for("fail_under")
    assert option is not None

    with pytest.raises(OptionError) as caught:
        parse_texts(option, [text], said_by="--fail-under")

    assert str(caught.value) == (f"--fail-under: {A_GATE}; got {wrong!r}")


def test_a_bad_environment_variable_is_named() -> None:
    with pytest.raises(OptionError, match=r"^EVALVE_SAMPLES: needs a whole number, 0 or more; got 'many'$"):
        from_environment({"EVALVE_SAMPLES": "many"})


def test_a_mapping_fills_options_with_values_of_python_and_yaml() -> None:
    options = from_mapping(
        {
            "limit": 5,
            "timeout": 2,
            "fail_under": {"accuracy": 0.9},
            "allow_failures": "5%",
            "fresh": False,
            "storage": None,
        },
        said_by="here",
    )

    assert options == Options(
        samples=5,
        timeout_s=2.0,
        fail_under=(Threshold("accuracy", 0.9),),
        allow_failures=Tolerance(share=0.05),
        fresh=False,
    )


@pytest.mark.parametrize(
    "value",
    ["accuracy=0.9", ["accuracy=0.9"], (Threshold("accuracy", 0.9),), {"accuracy": 0.9}],
)
def test_gates_are_written_as_text_list_mapping_or_thresholds(value: Any) -> None:
    assert from_mapping({"fail_under": value}, said_by="here").fail_under == (Threshold("accuracy", 0.9),)


def test_a_name_with_a_comma_is_written_in_a_mapping() -> None:
    options = from_mapping({"fail_under": {"grade, strict": 0.9}}, said_by="here")

    assert options.fail_under == (Threshold("grade, strict", 0.9),)


@pytest.mark.parametrize("value", ["accuracy=0.9,mean=2", ["accuracy=0.9", "mean=2"]])
def test_gates_in_one_text_are_separated_by_commas(value: Any) -> None:
    options = from_mapping({"fail_under": value}, said_by="here")

    assert options.fail_under == (Threshold("accuracy", 0.9), Threshold("mean", 2.0))


def test_an_unknown_key_is_an_error_that_suggests_a_known_one() -> None:
    with pytest.raises(
        OptionError, match=r"^here: unknown option 'max_concurency'; did you mean 'max_concurrency'\?$"
    ):
        from_mapping({"max_concurency": 3}, said_by="here")


def test_a_key_that_is_no_text_is_an_unknown_option() -> None:
    unquoted_on: Any = True

    with pytest.raises(OptionError, match=r"^here: unknown option True$"):
        from_mapping({unquoted_on: 3}, said_by="here")


def test_an_option_given_under_two_names_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"^here: samples is given twice, the second time as 'limit'$"):
        from_mapping({"samples": 3, "limit": 4}, said_by="here")


def test_a_bool_is_no_number() -> None:
    with pytest.raises(OptionError, match=r"^here: samples: got True, where N is needed$"):
        from_mapping({"samples": True}, said_by="here")


def test_off_as_yaml_reads_it_turns_progress_off() -> None:
    assert from_mapping({"progress": False}, said_by="here") == Options(progress="off")


def test_on_as_yaml_reads_it_is_no_kind_of_progress() -> None:
    with pytest.raises(
        OptionError, match=r"^here: progress: got True, where auto\|plain\|workers\|off is needed$"
    ):
        from_mapping({"progress": True}, said_by="here")


def test_the_first_layer_that_says_something_wins() -> None:
    together = merged(
        Options(samples=0), Options(samples=5, fresh=False), Options(samples=9, fresh=True, repeat=2)
    )

    assert together == Options(samples=0, fresh=False, repeat=2)


def test_what_was_said_is_kept_as_plain_values() -> None:
    options = Options(
        samples=0,
        max_concurrency="auto",
        fail_under=(Threshold("accuracy", 0.9),),
        allow_failures=Tolerance(share=0.05),
        fresh=False,
    )

    assert said(options) == {
        "samples": 0,
        "max_concurrency": "auto",
        "fail_under": ["accuracy=0.9"],
        "allow_failures": "5%",
        "fresh": False,
    }


@pytest.mark.parametrize(
    ("tolerance", "failed", "total", "allowed"),
    [
        (Tolerance(count=0), 0, 10, True),
        (Tolerance(count=0), 1, 10, False),
        (Tolerance(count=2), 2, 10, True),
        (Tolerance(count=2), 3, 10, False),
        (Tolerance(share=0.29), 29, 100, True),
        (Tolerance(share=0.29), 30, 100, False),
        (Tolerance(share=0.05), 1, 10, False),
        (Tolerance(share=0.0), 0, 0, True),
    ],
)
def test_a_tolerance_is_a_count_or_a_share(
    tolerance: Tolerance, failed: int, total: int, allowed: bool
) -> None:
    assert tolerance.allows(failed, total) is allowed


@pytest.mark.parametrize(
    ("tolerance", "text"), [(Tolerance(count=3), "3"), (Tolerance(share=0.05), "5%"), (Tolerance(), "0")]
)
def test_a_tolerance_reads_as_it_is_written(tolerance: Tolerance, text: str) -> None:
    assert str(tolerance) == text


def test_nothing_is_suggested_where_no_word_is_near() -> None:
    assert suggestion("zzz", ["samples"]) == ""


# -- gates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("accuracy=0.9", Threshold("accuracy", 0.9)),
        ("accuracy>=0.9", Threshold("accuracy", 0.9)),
        ("accuracy.low = 0.85", Threshold("accuracy.low", 0.85)),
        ("toxic<=0.1", Threshold("toxic", 0.1, from_above=True)),
        ("share_above(0.5, strict=True) <= 0.9", Threshold("share_above(0.5, strict=True)", 0.9, True)),
    ],
)
def test_a_gate_is_read_from_below_or_from_above(text: str, gate: Threshold) -> None:
    assert read_threshold(text) == gate


@pytest.mark.parametrize("text", ["toxic<0.1", "toxic<<=0.1", "<=0.1", "toxic<=", "toxic<=nan"])
def test_what_is_no_gate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="needs NAME=VALUE or NAME<=VALUE"):
        read_threshold(text)


def test_gates_are_written_in_yaml_as_on_the_command_line() -> None:
    options = from_mapping(
        {"fail_under": {"accuracy": 0.9, "toxic<=": 0.1}, "min_samples": 20}, said_by="here"
    )

    assert options.fail_under == (Threshold("accuracy", 0.9), Threshold("toxic", 0.1, from_above=True))
    assert options.min_samples == 20
    assert [str(gate) for gate in options.fail_under] == ["accuracy=0.9", "toxic<=0.1"]
