"""`converse`: plays a conversation with an agent, and scores it. Start reading here.

The rows are seeded → turn by turn the agent is asked and its calls are run → the state is compared → scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalve.conversations.agents import as_agent
from evalve.conversations.entities import expected_rows, seed_database, tables_in
from evalve.conversations.models import MAX_STEPS
from evalve.conversations.references import Unresolved, resolved
from evalve.conversations.rows import Conversation, read_conversation
from evalve.conversations.scoring import Played, Scoring, score_conversation
from evalve.conversations.tools import Toolbox
from evalve.conversations.turns import Agent, GaveUp, Message, PlayedTurn, Turn
from evalve.errors import AgentError, OptionError, ToolError
from evalve.evaluators.tools.rules import as_rules
from evalve.records import Result
from evalve.secrecy import without_lent_passwords
from evalve.tracing import trace


async def converse(
    conversation: Mapping[str, Any] | Conversation,
    *,
    agent: Any,
    tools: Iterable[Any] = (),
    db: Any = None,
    system: str | None = None,
    judge: Any = None,
    max_steps: int = MAX_STEPS,
    arguments: Any = "exact",
    workspace: Any = None,
    **asked: Any,
) -> Result:
    """Play a conversation and score it; return what it returns from an evaluation.

    `agent` is a model (an object or its name), a `Pair`, any `async def answer(turn) -> str`, or a program of
    `evalve.agent`, which works in the `workspace`. `tools` are functions, declared with `@tool`. `db` is a
    lent database; tools that take a `connection` work on it. `judge` is the model that judges responses which
    need one. A model answers at most `max_steps` times in a turn. `arguments` says how arguments are
    compared, as in `tool_call_match`. What else is `asked` goes with every call of the model: `temperature`,
    `max_tokens` …
    """
    planned = read_conversation(conversation)
    toolbox = Toolbox(tools, db)
    scoring = Scoring(toolbox.schemas, as_rules(arguments), judge)
    player = as_agent(agent, system=system, max_steps=max_steps, asked=asked, workspace=workspace)
    played = await play(planned, player, toolbox, db, scoring)
    return await score_conversation(planned, played, scoring)


async def play(
    conversation: Conversation, agent: Agent, toolbox: Toolbox, db: Any, scoring: Scoring
) -> Played:
    """All turns, also those after one that went wrong; then the state."""
    scoring.check(conversation)
    check_database(conversation, has_database=db is not None)
    commits = bool(getattr(agent, "connects_itself", False))
    uses_tables = conversation.seed or conversation.state is not None
    tables = await tables_in(db, commits=commits) if uses_tables else {}
    if conversation.seed:
        await seed_database(db, tables, conversation.seed, commits=commits)
    dialogue: list[Message] = []
    turns = []
    for expected in conversation.turns:
        turns.append(PlayedTurn(expected.number, expected.utterance))
        await _play_turn(turns[-1], dialogue, agent, toolbox, db)
    played = Played(turns)
    if conversation.state is not None:
        state = _state(conversation, played, scoring)
        played.state = (
            state
            if isinstance(state, str)
            else await db.diff(await expected_rows(db, tables, state, commits=commits))
        )
    return played


def check_database(conversation: Conversation, *, has_database: bool) -> None:
    """`OptionError` where a row needs a database and there is none."""
    if not has_database and (conversation.seed or conversation.state is not None):
        what = "initial_entities" if conversation.seed else "final_expected_state"
        raise OptionError(
            f"conversation {conversation.id!r} has `{what}`, and there is no database: say db=, or "
            "`sandbox: postgres` in an experiment"
        )


async def _play_turn(
    played: PlayedTurn, dialogue: list[Message], agent: Agent, toolbox: Toolbox, db: Any
) -> None:
    dialogue.append({"role": "user", "content": played.utterance})
    trace("turn", role="user", content=played.utterance, turn=played.number)
    try:
        played.reply = _text(await agent(Turn(played, dialogue, toolbox, db)), agent)
    except GaveUp as why:
        played.problem = str(why)
    except ToolError:
        pass  # which the agent let pass: it says nothing; what it called is known
    if played.reply:  # providers refuse messages that say nothing
        dialogue.append({"role": "assistant", "content": played.reply})
    said = {"content": played.reply} if not played.problem else {"content": "", "problem": played.problem}
    trace("turn", role="assistant", turn=played.number, **said)


def _text(reply: Any, agent: Agent) -> str:
    if reply is None:
        return ""
    text = reply if isinstance(reply, str) else getattr(reply, "text", None)
    if not isinstance(text, str):
        name = getattr(agent, "__qualname__", type(agent).__name__)
        raise AgentError(
            f"{name} returned {type(reply).__name__}, where the text of a reply is needed",
            failure_class="code",
        )
    return without_lent_passwords(text)


def _state(conversation: Conversation, played: Played, scoring: Scoring) -> Mapping[str, Any] | str:
    """What is expected, with what calls have returned; or why that is not known."""
    _, returned = scoring.verdicts(conversation, played.turns)
    try:
        state: Mapping[str, Any] = resolved(conversation.state, returned)
    except Unresolved as unresolved:
        return str(unresolved)
    return state
