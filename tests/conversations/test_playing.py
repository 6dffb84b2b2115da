"""Conversations with agents that are functions, and tools that work on a real database."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from conversation_tools import TOOLS, add, create_client, row, values, why
from evalve.conversations import ToolError, Turn, converse
from evalve.errors import AgentError, DatasetError, LenderError, OptionError
from evalve.sandboxes.postgresql.database import Database

ACME = {"seed_data": {"Client": {"7": {"name": "Acme", "stage": "customer", "labels": {"a": [1]}}}}}
EXPECTED = [
    {"says": "Add Initech", "expected_tool": "create_client", "expected_args": {"name": "Initech"}},
    {
        "says": "Quote it 500",
        "expected_tool": "create_quote",
        "expected_args": {"client_id": "{{turn_1.client_id}}", "amount": 500},
    },
]


async def diligent(turn: Turn) -> str:
    if turn.number == 1:
        made = await turn.call("create_client", {"name": "Initech"})
        return f"Client {made['client_id']} is there."
    (found,) = await turn.call("search_clients", {"name": "Initech"})
    await turn.call("create_quote", {"client_id": found["client_id"], "amount": 500})
    return "Quoted."


def answering(*calls: tuple[str, dict[str, Any]]) -> Callable[[Turn], Any]:
    """An agent that makes these calls, each in its turn, and lets errors pass."""

    async def answer(turn: Turn) -> str:
        await turn.call(*calls[turn.number - 1])
        return "ok"

    return answer


async def test_turns_are_played_on_the_seeded_rows_and_the_state_is_compared(db: Database) -> None:
    clients = {"7": {"name": "Acme"}, "{{turn_1.client_id}}": {"name": "Initech", "stage": "lead"}}
    quotes = [{"client_id": "{{turn_1.client_id}}", "amount": 500}]
    told = row(*EXPECTED, initial_entities=ACME, final_expected_state={"Client": clients, "quotes": quotes})

    result = await converse(told, agent=diligent, tools=TOOLS, db=db)

    assert values(result, "success") == values(result, "final_state") == [True]
    assert result.prompt == "Add Initech"
    first, second = result.response["turns"]
    assert (first["reply"], first["right"], first["why"]) == ("Client 8 is there.", True, [])
    assert first["calls"] == [
        {
            "name": "create_client",
            "arguments": {"name": "Initech"},
            "result": {"client_id": 8, "name": "Initech"},
            "wrote": True,
        }
    ]
    assert [made["name"] for made in second["calls"]] == ["search_clients", "create_quote"]
    assert "wrote" not in second["calls"][0]


async def test_the_difference_of_states_is_told(db: Database) -> None:
    told = row(EXPECTED[0], final_expected_state={"clients": [{"name": "Initech", "stage": "customer"}]})
    result = await converse(told, agent=diligent, tools=TOOLS, db=db)
    assert (values(result, "success"), values(result, "all_turns")) == ([False], [True])
    assert result.response["state"] == "clients: name 'Initech': stage is 'lead' instead of 'customer'"


async def test_a_state_that_refers_to_a_turn_that_went_wrong_is_wrong(db: Database) -> None:
    async def idle(turn: Turn) -> str:
        return "no"

    told = row(EXPECTED[0], final_expected_state={"clients": {"{{turn_1.client_id}}": {"name": "Initech"}}})
    result = await converse(told, agent=idle, tools=TOOLS, db=db)
    assert why(result, "final_state") == ["{{turn_1.client_id}} is not known, because turn 1 went wrong"]


async def test_rows_are_seeded_in_whatever_order_they_refer_to_each_other(db: Database) -> None:
    seed = {
        "Quote": [{"client_id": 3, "amount": 9.5}],
        "Client": {"3": {"name": "Acme", "company": "Holding"}},
        "Company": {"Holding": {}},
    }
    told = row(
        EXPECTED[0], initial_entities={"seed_data": seed}, final_expected_state={"quotes": [{"amount": 9.5}]}
    )
    result = await converse(told, agent=diligent, tools=TOOLS, db=db)
    assert values(result, "success") == [True]


@pytest.mark.parametrize("entity", ["Warehouse", "stock.warehouses"])
async def test_rows_are_seeded_in_other_schemas_and_their_numbers_are_not_given_out_again(
    db: Database, entity: str
) -> None:
    async def answer(turn: Turn) -> None:
        async with db.savepoint() as connection:
            await connection.execute("INSERT INTO stock.warehouses (city) VALUES ('Oslo')")

    seed = {entity: [{"id": 3, "city": "Rome", "ticket": 40}]}
    state = {entity: [{"id": 3, "ticket": 40}, {"id": 10, "city": "Oslo", "ticket": 41}]}
    told = row({}, initial_entities={"seed_data": seed}, final_expected_state=state)
    assert values(await converse(told, agent=answer, db=db), "final_state") == [True]


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (
            {"Cliant": {"1": {}}},
            r"no table is called 'Cliant'.*did you mean 'clients'.*there is: clients, comp",
        ),
        ({"Client": {"1": {"nam": "A"}}}, r"table clients has no column 'nam'; did you mean 'name'\?"),
        ({"Client": {"1": {"name": "A", "stage": "none"}}}, "cannot be inserted into clients: invalid input"),
        ({"visits": [{"client_id": 5}]}, "inserted into visits: insert or update.*foreign key"),
        (
            {"Client": {"1": {"name": "A", "company": "B"}}},
            "inserted into clients: insert or update.*foreign key",
        ),
    ],
)
async def test_rows_that_cannot_be_seeded_are_told(db: Database, seed: Any, message: str) -> None:
    told = row(EXPECTED[0], initial_entities={"seed_data": seed})
    with pytest.raises(DatasetError, match=message):
        await converse(told, agent=diligent, tools=TOOLS, db=db)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (("breaks", {"how": "refuses"}), "not today"),
        (("breaks", {"how": "crashes"}), "KeyError: 'nothing'"),
        (("breaks", {"how": "asks"}), 'relation "nowhere" does not exist'),
        (("breaks", {"how": "sleeps"}), "canceling statement due to statement timeout"),
        (("create_quote", {"client_id": 7, "amount": -1}), "the amount must be above 0"),
        (("create_client", {"name": 5}), "create_client: name: 5 is not of type string"),
        (
            ("create_client", {"nam": "A"}),
            "create_client: nam: there is no such argument; did you mean 'name'?",
        ),
        (("create_cliant", {}), "there is no tool 'create_cliant'; did you mean 'create_client'?"),
    ],
)
async def test_what_goes_wrong_in_a_tool_is_told_to_the_agent_and_undone(
    db: Database, events: Callable[[], Any], call: tuple[str, dict[str, Any]], error: str
) -> None:
    heard = []

    async def answer(turn: Turn) -> str:
        if turn.number == 2:
            return "Still here."
        try:
            await turn.call(*call)
        except ToolError as told:
            heard.append(str(told))
        return "Sorry."

    expected = {"expected_tool": "breaks", "expect_success": False}
    told = row(expected, {"expected_calls": []}, initial_entities=ACME, final_expected_state={"quotes": []})
    told["final_expected_state"]["clients"] = [{"name": "Acme"}]
    result = await converse(told, agent=answer, tools=TOOLS, db=db)

    assert [line for line in heard if error in line] == heard != []
    assert values(result, "final_state") == [True]
    assert values(result, "turn")[1] is True
    (made,) = [event for event in events() if event["kind"] == "tool_call"]
    assert made["error"] == heard[0]
    notes = [event["text"] for event in events() if event["kind"] == "note"]
    assert ["the tool breaks crashed" in note for note in notes] == ([True] if "KeyError" in error else [])


async def test_an_error_that_the_agent_lets_pass_ends_its_turn_and_not_the_conversation(db: Database) -> None:
    expected = {"expected_tool": "breaks", "expect_success": False, "expected_error_substring": "not today"}
    agent = answering(("breaks", {"how": "refuses"}), ("add", {"one": 1, "other": 2}))
    result = await converse(row(expected, {"expected_tool": "add"}), agent=agent, tools=TOOLS, db=db)
    assert values(result, "turn") == [True, True]
    assert [turn["reply"] for turn in result.response["turns"]] == ["", "ok"]


async def test_what_is_checked_at_a_commit_is_checked_at_the_end_of_a_call(db: Database) -> None:
    """And not before: the visit comes before the client."""

    async def visit(connection: Any, client: int, name: str | None = None) -> None:
        await connection.execute("INSERT INTO visits (client_id) VALUES (%s)", (client,))
        if name is not None:
            await connection.execute("INSERT INTO clients (id, name) VALUES (%s, %s)", (client, name))

    agent = answering(*(("visit", one) for one in ({"client": 1, "name": "A"}, {"client": 2}, {"client": 1})))
    refused = {"expected_tool": "visit", "expected_error_substring": "violates foreign key"}
    right = {"expected_tool": "visit"}
    told = row(
        right,
        refused,
        right,
        initial_entities={"seed_data": {"visits": [{"client_id": 7}], **ACME["seed_data"]}},
        final_expected_state={"visits": [{"client_id": 7}, {"client_id": 1}, {"client_id": 1}]},
    )
    result = await converse(told, agent=agent, tools=[visit], db=db)
    assert (values(result, "turn"), values(result, "final_state")) == ([True] * 3, [True])


async def test_emptying_a_table_is_writing_and_a_temporary_table_is_not(db: Database) -> None:
    async def empties(connection: Any) -> None:
        await connection.execute("TRUNCATE clients CASCADE")

    async def looks(connection: Any) -> None:
        await connection.execute("CREATE TEMP TABLE found AS SELECT * FROM clients")
        await connection.execute("INSERT INTO found (name) VALUES ('a')")

    agent = answering(("empties", {}), ("looks", {}))
    result = await converse(row({}, {"expected_tool": "looks"}), agent=agent, tools=[empties, looks], db=db)
    wrote = ["wrote" in call for turn in result.response["turns"] for call in turn["calls"]]
    assert wrote == [True, False]


async def test_what_was_undone_does_not_count_as_written_by_the_next_call(db: Database) -> None:
    async def answer(turn: Turn) -> None:
        for name, arguments in (
            ("search_clients", {"name": "A"}),
            ("breaks", {"how": "refuses"}),
            ("search_clients", {"name": "A"}),
        ):
            with contextlib.suppress(ToolError):
                await turn.call(name, arguments)

    result = await converse(row({"expected_tool": "search_clients"}), agent=answer, tools=TOOLS, db=db)
    assert ["wrote" in call for call in result.response["turns"][0]["calls"]] == [False, False, False]


async def test_a_turn_without_a_reply_leaves_no_empty_message() -> None:
    seen: list[Any] = []

    async def answer(turn: Turn) -> None:
        seen.append([message["role"] for message in turn.dialogue])

    await converse(row({"expected_calls": []}, {"expected_calls": []}), agent=answer)
    assert seen == [["user"], ["user", "user"]]


async def test_a_lost_connection_is_no_matter_of_the_agent(db: Database) -> None:
    with pytest.raises(LenderError, match="the connection to the database was lost at breaks"):
        await converse(
            row({"expected_tool": "breaks"}), agent=answering(("breaks", {"how": "dies"})), tools=TOOLS, db=db
        )


async def test_a_tool_that_never_returns_ends_with_the_deadline(db: Database) -> None:
    agent = answering(("breaks", {"how": "hangs"}))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await converse(row({"expected_tool": "breaks"}), agent=agent, tools=TOOLS, db=db)


async def test_a_turn_has_the_dialogue_so_far_as_models_take_it() -> None:
    seen: list[Any] = []

    async def answer(turn: Turn) -> str:
        seen.append([dict(message) for message in turn.dialogue])
        await turn.call("add", {"one": turn.number, "other": 1})
        return f"It is {turn.number + 1}."

    async def plain(one: int, other: int) -> int:
        return one + other

    plain.__name__ = "add"
    expected = {"expected_tool": "add", "expected_response": {"answers": [2, 3]}}
    await converse(
        row({**expected, "says": "1 + 1?"}, {**expected, "says": "2 + 1?"}), agent=answer, tools=[plain]
    )

    assert seen[0] == [{"role": "user", "content": "1 + 1?"}]
    said = [(one["role"], one["content"]) for one in seen[1]]
    assert said == [
        ("user", "1 + 1?"),
        ("assistant", ""),
        ("tool", "2"),
        ("assistant", "It is 2."),
        ("user", "2 + 1?"),
    ]
    (made,) = seen[1][1]["tool_calls"]
    assert (made.name, made.id) == ("add", seen[1][2]["tool_call_id"])


async def test_turns_and_calls_are_events_of_the_trace(events: Callable[[], Any]) -> None:
    agent = answering(("add", {"one": 1, "other": 2}))
    await converse(row({"says": "1 + 2?", "expected_tool": "add"}), agent=agent, tools=[TOOLS[-1]])
    told = [{key: event[key] for key in event if key != "at"} for event in events()]
    assert told == [
        {"kind": "turn", "role": "user", "content": "1 + 2?", "turn": 1},
        {"kind": "tool_call", "name": "add", "arguments": {"one": 1, "other": 2}, "result": 3},
        {"kind": "turn", "role": "assistant", "content": "ok", "turn": 1},
    ]


async def returns_five(turn: Turn) -> Any:
    return 5


@pytest.mark.parametrize(
    ("told", "asked", "error", "message"),
    [
        (
            EXPECTED[0],
            {"agent": diligent, "tools": [create_client]},
            OptionError,
            "'create_client' takes a conn",
        ),
        (
            EXPECTED[0],
            {"agent": diligent, "tools": TOOLS[-1:]},
            DatasetError,
            "turn 1: the tool 'create_client' is",
        ),
        (
            {"expected_tool": "ad"},
            {"agent": diligent, "tools": TOOLS[-1:]},
            DatasetError,
            "did you mean 'add'",
        ),
        ({"expected_calls": []}, {"agent": 5}, OptionError, "agent= is a model, a Pair, what evalve.agent"),
        ({"expected_calls": []}, {"agent": lambda turn: "a"}, OptionError, "an async function of a turn"),
        (
            {"expected_calls": []},
            {"agent": diligent, "temperature": 0},
            OptionError,
            "temperature= goes with every",
        ),
        (
            {"expected_calls": []},
            {"agent": diligent, "max_steps": 0},
            OptionError,
            "max_steps= is a whole number",
        ),
        (
            {"expected_calls": []},
            {"agent": returns_five},
            AgentError,
            "returns_five returned int, where the text",
        ),
        (
            {"expected_response": {"text": "a", "requires_judge": True}},
            {"agent": diligent},
            OptionError,
            "expects a response that needs a judge: say judge=",
        ),
        (
            {"expected_calls": []},
            {"agent": diligent, "tools": [TOOLS[-1], TOOLS[-1]]},
            OptionError,
            "two tools are called 'add'",
        ),
    ],
)
async def test_mistakes_are_told_before_anybody_is_asked(
    told: Any, asked: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await converse(row(told), **asked)


async def test_rows_with_a_state_need_a_database() -> None:
    told = row({"expected_calls": []}, final_expected_state={"clients": []})
    with pytest.raises(OptionError, match="has `final_expected_state`, and there is no database: say db="):
        await converse(told, agent=diligent)


def test_tools_are_functions_that_can_be_called_as_they_are() -> None:
    assert add(1, 2) == 3


async def test_a_function_that_connects_by_itself_finds_what_was_seeded(db: Database) -> None:
    async def answer(turn: Turn) -> str:
        async with turn.db.connect() as connection:
            cursor = await connection.execute("UPDATE clients SET stage = 'lead' RETURNING name")
            (name,) = await cursor.fetchone()
        return f"{name} is lost."

    answer.connects_itself = True  # type: ignore[attr-defined]
    expected = {"expected_response": {"answers": ["Acme is lost"]}}
    told = row(expected, initial_entities=ACME, final_expected_state={"clients": {"7": {"stage": "lead"}}})
    assert values(await converse(told, agent=answer, db=db), "success") == [True]


@pytest.mark.parametrize(
    ("statement", "difference"),
    [
        ("DROP TABLE clients CASCADE", "clients: the table is not there"),
        ("ALTER TABLE clients DROP COLUMN stage", "clients: name 'Acme': stage is nothing instead of 'lead'"),
        (
            "ALTER ROLE CURRENT_USER PASSWORD 'mine'",
            "clients: name 'Acme': stage is 'customer' instead of 'lead'",
        ),
    ],
)
async def test_an_agent_that_destroys_its_database_is_wrong_and_the_row_is_not(
    db: Database, statement: str, difference: str
) -> None:
    async def answer(turn: Turn) -> str:
        async with turn.db.connect() as connection:
            await connection.execute(statement)
        return f"My database was {turn.db.dsn}."

    answer.connects_itself = True  # type: ignore[attr-defined]
    state = {"clients": {"7": {"name": "Acme", "stage": "lead"}}}
    told = row({}, initial_entities=ACME, final_expected_state=state)
    result = await converse(told, agent=answer, db=db)
    assert why(result, "final_state") == why(result, "success") == [difference]
    assert ":***@" in result.response["turns"][0]["reply"]


async def test_an_argument_that_is_its_default_is_the_same_as_one_left_out(db: Database) -> None:
    agent = answering(("create_client", {"name": "Acme", "company": None}))
    expected = {"expected_tool": "create_client", "expected_args": {"name": "Acme"}}
    assert values(await converse(row(expected), agent=agent, tools=TOOLS, db=db), "turn") == [True]
