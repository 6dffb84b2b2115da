"""Models in conversations, over both wire formats: alone, with a teacher, judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import evalve
from conversation_tools import TOOLS, row, values, why
from evalve import Result, foreach
from evalve.contracts import SampleContext
from evalve.conversations import Pair, converse
from evalve.errors import ModelError, OptionError
from evalve.sandboxes.postgresql.database import Database
from evalve.sandboxes.postgresql.lender import Postgres
from evalve.simulator import Answer, Ask, ToolCall

MODELS = ["anthropic/claude-sonnet-5", "openai/gpt-5"]
ADD = TOOLS[-1:]
SUM = {"says": "What is 2 + 3?", "expected_tool": "add", "expected_args": {"one": 2, "other": 3}}
CALL = Answer("Let me see.", (ToolCall("add", {"one": 2, "other": 3}),))


def last(ask: Ask) -> str:
    """What the model was told last, whatever the wire format."""
    return str(ask.body["messages"][-1]["content"])


def calculator(ask: Ask) -> Any:
    """Calls the tool once for each question, and then says its result."""
    told = ask.body["messages"][-1]
    is_result = told["role"] == "tool" or not isinstance(told["content"], str)
    return f"It is {ask.tool_rounds[-1][0]}." if is_result else CALL


@pytest.mark.parametrize("model", MODELS)
async def test_a_model_calls_tools_until_it_replies(provider: Any, model: str) -> None:
    expected = {**SUM, "expected_response": {"answers": [5]}}
    with provider(calculator) as simulator:
        result = await converse(
            row(expected, expected), agent=model, tools=ADD, system="Be exact.", max_tokens=99
        )

    assert values(result, "turn") == [True, True]
    assert [turn["reply"] for turn in result.response["turns"]] == ["It is 5."] * 2
    assert simulator.stats.admitted == 4


@pytest.mark.parametrize("model", MODELS)
async def test_the_dialogue_of_earlier_turns_goes_along(provider: Any, model: str) -> None:
    asked: list[Ask] = []

    def remembering(ask: Ask) -> Any:
        asked.append(ask)
        return calculator(ask)

    with provider(remembering):
        await converse(row(SUM, {**SUM, "says": "And again?"}), agent=model, tools=ADD, system="Be exact.")

    roles = [message["role"] for message in asked[1].body["messages"] if message["role"] != "system"]
    assert roles[:2] == ["user", "assistant"] and len(roles) == 3  # then the result, as the provider has it
    assert "Be exact." in asked[2].prompt
    assert [text in asked[2].prompt for text in ("What is 2 + 3?", "It is 5.", "And again?")] == [True] * 3
    assert asked[2].tool_rounds == (("5",),)
    assert asked[2].tools == ("add",)


def test_in_batches_the_calls_of_all_conversations_go_out_together(provider: Any, lending: Postgres) -> None:
    """Each keeps its database, and the rows in it, through a round of its own for every answer."""

    def registrar(ask: Ask) -> Any:
        if ask.tool_rounds:
            return f"It is {ask.tool_rounds[-1][0]}."
        return Answer("", (ToolCall("create_client", {"name": ask.prompt.split()[-1]}),))

    @foreach("conversation", [_adding("Acme"), _adding("Hooli")])
    async def eval_crm(conversation: dict[str, Any], db: Any = lending) -> Result:
        return await converse(conversation, agent=MODELS[0], tools=TOOLS, db=db)

    with provider(registrar) as simulator:
        result = evalve.run(eval_crm, experiment="e", batch=True, progress="off")
    assert [record.scores[0].value for record in result] == [True, True]
    assert (simulator.stats.batches, simulator.stats.batched, simulator.stats.requests) == (2, 4, 0)


def _adding(name: str) -> dict[str, Any]:
    expected = {"says": f"Add {name}", "expected_tool": "create_client", "expected_args": {"name": name}}
    return {**row(expected, final_expected_state={"clients": [{"name": name}]}), "conversation_id": name}


@pytest.mark.parametrize("model", MODELS)
async def test_a_models_mistakes_are_told_to_it(provider: Any, db: Database, model: str) -> None:
    calls = [
        ToolCall("create_client", {"nam": "A"}),
        ToolCall("create_cliant", {}),
        ToolCall("create_client", "{not JSON"),
        ToolCall("create_quote", {"client_id": 1, "amount": 5}),
    ]
    told: list[str] = []

    def clumsy(ask: Ask) -> Any:
        if not ask.tool_rounds:
            return Answer("", tuple(calls))
        told.extend(ask.tool_rounds[0])
        return "Sorry."

    with provider(clumsy):
        await converse(row({"expected_tool": "create_client"}), agent=model, tools=TOOLS, db=db)

    assert [line.partition(" did you")[0] for line in told] == [
        "error: create_client: nam: there is no such argument;",
        "error: there is no tool 'create_cliant';",
        "error: create_client: the arguments are not a JSON object: '{not JSON'",
        told[3],
    ]
    assert "violates foreign key constraint" in told[3]


async def test_a_model_that_never_replies_has_a_wrong_turn_and_goes_on(provider: Any) -> None:
    def stubborn(ask: Ask) -> Any:
        return CALL if "And" not in last(ask) else "Enough."

    told = row(SUM, {"says": "And now?", "expected_calls": []})
    with provider(stubborn) as simulator:
        result = await converse(told, agent=MODELS[1], tools=ADD, max_steps=3)

    assert values(result, "turn") == [False, True]
    assert why(result, "turn")[0] == (
        "max_steps: 3 answers, and the last one still called tools instead of replying"
    )
    assert len(result.response["turns"][0]["calls"]) == 3
    assert simulator.stats.admitted == 4


async def test_a_provider_that_breaks_is_never_a_wrong_turn(
    provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with provider(calculator) as simulator:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{simulator.url}/nowhere")
        with pytest.raises(ModelError, match="404"):
            await converse(row(SUM), agent=MODELS[1], tools=ADD)


class Class:
    """A student that adds wrongly until it is told, and a teacher that sees it."""

    def __init__(self) -> None:
        self.taught: list[str] = []
        self.systems: list[str] = []

    def __call__(self, ask: Ask) -> Any:
        if not ask.tools:
            self.taught.append(ask.prompt)
            is_wrong = '"other":30' in last(ask)
            return "You shall add 3." if is_wrong or "about to" not in last(ask) else "Approved."
        self.systems.append(ask.prompt)
        if ask.tool_rounds:
            return "Done."
        knows = "You shall add 3." in ask.prompt
        return Answer("", (ToolCall("add", {"one": 2, "other": 3 if knows else 30}),))


@pytest.mark.parametrize("student", MODELS)
async def test_a_teacher_reviews_what_the_student_is_about_to_do(
    provider: Any, sample: SampleContext, events: Callable[[], Any], student: str
) -> None:
    room = Class()
    pair = Pair(student=student, teacher=MODELS[0])
    with provider(room):
        result = await converse(row(SUM), agent=pair, tools=ADD)

    assert values(result, "success") == [True]
    assert [call["arguments"] for call in result.response["turns"][0]["calls"]] == [{"one": 2, "other": 3}]
    assert "user: What is 2 + 3?" in room.taught[0]
    assert 'The assistant is about to call add({"one":2,"other":30})' in room.taught[0]
    assert "The assistant is about to reply: Done." in room.taught[1]
    assert [event["text"] for event in events() if event["kind"] == "note"] == [
        "teacher: You shall add 3.",
        "teacher: Approved.",
    ]
    roles = {role: log.requests for role, log in sample.calls.roles.items()}
    assert roles == {"student": 3, "teacher": 2}


async def test_a_teacher_guides_the_student_before_the_turn(provider: Any, sample: SampleContext) -> None:
    room = Class()
    pair = Pair(student=MODELS[1], teacher=MODELS[0], teaching="guide")
    with provider(room) as simulator:
        result = await converse(row(SUM), agent=pair, tools=ADD, system="Be exact.")

    assert values(result, "success") == [True]
    assert (len(room.taught), simulator.stats.admitted) == (1, 3)
    assert "Be exact.\n\nAdvice of your teacher for this turn: You shall add 3." in room.systems[0]


def test_a_way_to_teach_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="teaching='reviw' is not a way to teach; did you mean 'review'"):
        Pair("a", "b", teaching="reviw")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdict", "value", "success"),
    [
        ('{"reason": "says so", "verdict": "yes"}', True, True),
        ('{"reason": "says nothing", "verdict": "no"}', False, False),
        ("I would rather not.", None, None),
    ],
)
async def test_a_response_that_needs_a_judge_is_judged(
    provider: Any, sample: SampleContext, events: Any, verdict: str, value: Any, success: Any
) -> None:
    def both(ask: Ask) -> Any:
        return verdict if "Rubric:" in ask.prompt else calculator(ask)

    expected = {**SUM, "expected_response": {"text": "five", "evaluation": "judge"}}
    with provider(both):
        result = await converse(row(expected), agent=MODELS[1], tools=ADD, judge=MODELS[0])

    assert (values(result, "response"), values(result, "success")) == ([value], [success])
    assert values(result, "turn") == [success]
    assert sample.calls.roles["judge"].requests >= 1
