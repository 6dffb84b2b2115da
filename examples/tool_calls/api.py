"""The tools of Lantern, an observability API that exists only here, for each of its twelve resources."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def text(description: str) -> Schema:
    return {"type": "string", "description": description}


def whole(description: str, least: int = 0) -> Schema:
    return {"type": "integer", "minimum": least, "description": description}


def number(description: str) -> Schema:
    return {"type": "number", "description": description}


def flag(description: str, default: bool) -> Schema:
    return {"type": "boolean", "default": default, "description": description}


def one_of(description: str, *values: str) -> Schema:
    return {"type": "string", "enum": list(values), "description": description}


def many(description: str, items: Schema) -> Schema:
    return {"type": "array", "items": items, "description": description}


def entity(required: str, /, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": required.split()}


DATASET = text("The dataset, by its slug, as in `checkout`.")
CALCULATION = entity(
    "op",
    op=one_of("How it is calculated.", "COUNT", "AVG", "MAX", "P50", "P95", "P99"),
    column=text("The column it is calculated over; none for COUNT."),
)
CONDITION = entity(
    "column op",
    column=text("The column that is looked at."),
    op=one_of("How it is compared.", "=", "!=", ">", "<", "exists", "contains"),
    value={"description": "What it is compared with: a text, a number or a boolean."},
)
WITHIN = whole("How far back, in seconds from now.", 60)


def tool(name: str, description: str, required: str = "", /, **properties: Schema) -> Schema:
    """In Anthropic's form, which evalve.model understands for every provider."""
    return {"name": name, "description": description, "input_schema": entity(required, **properties)}


TOOLS: dict[str, list[Schema]] = {
    "datasets": [
        tool("list_datasets", "List the datasets of this environment."),
        tool(
            "create_dataset",
            "Create a dataset that events can be sent to.",
            "name",
            name=text("Its name."),
            description=text("What it holds, in a sentence."),
            json_depth=whole("How deep nested JSON is unpacked."),
        ),
        tool("get_dataset", "Get one dataset and its settings.", "dataset", dataset=DATASET),
        tool(
            "delete_dataset",
            "Delete a dataset with all of its events. It cannot be undone.",
            "dataset",
            dataset=DATASET,
        ),
    ],
    "columns": [
        tool("list_columns", "List the columns of a dataset.", "dataset", dataset=DATASET),
        tool(
            "describe_column",
            "Set what a column means, or hide it from pickers.",
            "dataset column",
            dataset=DATASET,
            column=text("The column's name."),
            description=text("What it means."),
            hidden=flag("Hide it.", False),
        ),
        tool(
            "derive_column",
            "Add a column that is calculated from others at query time.",
            "dataset name expression",
            dataset=DATASET,
            name=text("The new column's name."),
            expression=text("As in `MUL($duration, 1000)`."),
        ),
    ],
    "queries": [
        tool(
            "save_query",
            "Save a query on a dataset, without running it.",
            "dataset calculations",
            dataset=DATASET,
            calculations=many("What is calculated.", CALCULATION),
            conditions=many("All must hold.", CONDITION),
            group_by=many("Columns to break down by.", {"type": "string"}),
            within_s=WITHIN,
        ),
        tool("get_query", "Get a saved query by its id.", "query_id", query_id=text("As in `q-81`.")),
    ],
    "results": [
        tool(
            "run_query",
            "Run a saved query now, and get its result's id.",
            "query_id",
            query_id=text("As in `q-81`."),
            limit=whole("The most rows.", 1),
            with_series=flag("Also every point in time.", False),
        ),
        tool(
            "get_result",
            "Get the rows of a result that was run before.",
            "result_id",
            result_id=text("As in `r-12`."),
        ),
        tool(
            "export_result",
            "Write a result to a file that can be downloaded.",
            "result_id format",
            result_id=text("As in `r-12`."),
            format=one_of("The file's form.", "csv", "json"),
        ),
    ],
    "boards": [
        tool("list_boards", "List the boards of this environment."),
        tool(
            "create_board",
            "Create a board, on which queries are shown side by side.",
            "name",
            name=text("Its name."),
            description=text("What it is for."),
            query_ids=many("Queries to show on it.", {"type": "string"}),
        ),
        tool(
            "add_to_board",
            "Put a saved query on a board.",
            "board_id query_id",
            board_id=text("As in `b-3`."),
            query_id=text("As in `q-81`."),
            style=one_of("How it is drawn.", "graph", "table", "both"),
        ),
        tool("delete_board", "Delete a board; its queries stay.", "board_id", board_id=text("As in `b-3`.")),
    ],
    "markers": [
        tool(
            "mark",
            "Mark a moment or a span of time on every graph of a dataset.",
            "dataset message",
            dataset=DATASET,
            message=text("What happened."),
            kind=one_of("What it is.", "deploy", "incident", "note"),
            minutes=whole("How long it lasted; a moment unless given.", 1),
            url=text("Where to read more."),
        ),
        tool("list_markers", "List the markers of a dataset.", "dataset", dataset=DATASET),
        tool(
            "delete_marker",
            "Remove a marker.",
            "dataset marker_id",
            dataset=DATASET,
            marker_id=text("As in `m-7`."),
        ),
    ],
    "triggers": [
        tool("list_triggers", "List the triggers of a dataset.", "dataset", dataset=DATASET),
        tool(
            "create_trigger",
            "Watch a saved query, and notify when its value crosses a threshold.",
            "query_id op threshold recipient_ids",
            query_id=text("As in `q-81`."),
            op=one_of("When it fires.", ">", ">=", "<", "<="),
            threshold=number("The value that is compared."),
            every_s=whole("How often it is looked at.", 60),
            recipient_ids=many("Whom to notify.", {"type": "string"}),
        ),
        tool(
            "pause_trigger",
            "Stop a trigger from firing, or let it fire again.",
            "trigger_id paused",
            trigger_id=text("As in `t-5`."),
            paused={"type": "boolean", "description": "True stops it."},
        ),
        tool("delete_trigger", "Delete a trigger.", "trigger_id", trigger_id=text("As in `t-5`.")),
    ],
    "objectives": [
        tool(
            "list_objectives", "List the service level objectives of a dataset.", "dataset", dataset=DATASET
        ),
        tool(
            "create_objective",
            "Create a service level objective over a column that says good or bad.",
            "dataset name good_column target_percent days",
            dataset=DATASET,
            name=text("Its name."),
            good_column=text("The column that is true for good events."),
            target_percent=number("The share of good events, as in 99.9."),
            days=whole("Over how many days.", 1),
        ),
        tool(
            "get_objective",
            "Get an objective, with the budget that is left of it.",
            "objective_id",
            objective_id=text("As in `o-2`."),
        ),
    ],
    "burn_alerts": [
        tool(
            "create_burn_alert",
            "Notify when an objective's budget would be spent within some hours.",
            "objective_id hours_left recipient_ids",
            objective_id=text("As in `o-2`."),
            hours_left=whole("Hours until the budget is spent.", 0),
            recipient_ids=many("Whom to notify.", {"type": "string"}),
        ),
        tool(
            "list_burn_alerts",
            "List the burn alerts of an objective.",
            "objective_id",
            objective_id=text("As in `o-2`."),
        ),
        tool("delete_burn_alert", "Delete a burn alert.", "alert_id", alert_id=text("As in `a-4`.")),
    ],
    "recipients": [
        tool("list_recipients", "List whom notifications can be sent to."),
        tool(
            "add_recipient",
            "Add somebody to notify.",
            "kind address",
            kind=one_of("By which way.", "email", "chat", "pager", "webhook"),
            address=text("An address, a #channel, a service or a URL."),
        ),
        tool(
            "test_recipient",
            "Send a notification to a recipient as a test.",
            "recipient_id",
            recipient_id=text("As in `p-9`."),
        ),
    ],
    "environments": [
        tool("list_environments", "List the environments of the team."),
        tool(
            "create_environment",
            "Create an environment, with data and keys of its own.",
            "name",
            name=text("Its name."),
            colour=one_of("How it is shown.", "blue", "green", "gold", "red"),
        ),
        tool(
            "create_key",
            "Create a key for an environment.",
            "environment name may",
            environment=text("By its slug."),
            name=text("What it is for."),
            may=many("What it allows.", one_of("", "send", "query", "manage")),
        ),
        tool(
            "revoke_key",
            "Take a key back; whoever uses it is refused at once.",
            "key_id",
            key_id=text("As in `k-6`."),
        ),
    ],
    "events": [
        tool(
            "send_event",
            "Send one event to a dataset.",
            "dataset fields",
            dataset=DATASET,
            fields={"type": "object", "description": "Its columns and values."},
            sample_rate=whole("How many events it stands for.", 1),
        ),
        tool(
            "count_events",
            "How many events a dataset took in, day by day.",
            "dataset",
            dataset=DATASET,
            days=whole("For how many days.", 1),
        ),
    ],
}
"""By resource."""
ALL_TOOLS: list[Schema] = [one for tools in TOOLS.values() for one in tools]
"""What the model is offered in every case: it has to choose among them all."""
