"""The CRM once more, as plain Python over dictionaries: what each call should do, known without a database.

Expected states and answers come from here. It shares neither code nor SQL with tools.py, so that where the
two agree, both are probably right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
COLUMNS: dict[str, dict[str, Any]] = {
    "companies": {"name": None, "kind": "customer", "industry": None, "country": None, "employees": None},
    "clients": {
        "company_id": None,
        "name": None,
        "email": None,
        "phone": None,
        "status": "prospect",
        "owner": None,
    },
    "contacts": {
        "client_id": None,
        "first_name": None,
        "last_name": None,
        "title": None,
        "email": None,
        "phone": None,
        "is_primary": False,
    },
    "opportunities": {
        "client_id": None,
        "name": None,
        "stage": "qualification",
        "amount": None,
        "probability": 10,
        "close_date": None,
        "owner": None,
    },
    "quotes": {"opportunity_id": None, "title": None, "amount": None, "status": "draft", "valid_until": None},
    "contracts": {
        "client_id": None,
        "quote_id": None,
        "value": None,
        "status": "pending",
        "start_date": None,
        "end_date": None,
    },
    "documents": {"client_id": None, "contract_id": None, "name": None, "kind": "other"},
    "notes": {"client_id": None, "opportunity_id": None, "body": None, "author": None},
}
"""Each table's columns, with what a new row has where nothing is said; without times of changes."""
ENTITIES = {
    "Company": "companies",
    "Client": "clients",
    "Contact": "contacts",
    "Opportunity": "opportunities",
    "Quote": "quotes",
    "Contract": "contracts",
    "Document": "documents",
    "Note": "notes",
}
ID_OF = {table: f"{entity.lower()}_id" for entity, table in ENTITIES.items()}
UNIQUE: dict[str, list[tuple[str, ...]]] = {
    "companies": [("name",)],
    "clients": [("name",), ("email",)],
    "contacts": [("client_id", "email")],
    "opportunities": [("client_id", "name")],
    "quotes": [("opportunity_id", "title")],
    "documents": [("client_id", "name")],
}
CLOSED = {"closed_won", "closed_lost"}
NEXT = {
    ("quotes", "draft"): {"sent", "cancelled"},
    ("quotes", "sent"): {"approved", "rejected", "cancelled"},
    ("contracts", "pending"): {"active", "terminated"},
    ("contracts", "active"): {"expired", "terminated"},
}


class Refused(Exception):
    """The call is not possible; nothing has changed."""


class Crm:
    """All rows, by table and id."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Row]] = {table: {} for table in COLUMNS}
        self._made = 0

    def put(self, table: str, which: str, **values: Any) -> Row:
        """A row, as a seed has it."""
        unknown = values.keys() - COLUMNS[table].keys()
        assert not unknown, f"{table} has no {unknown}"
        self.tables[table][which] = {**COLUMNS[table], **values}
        return self.tables[table][which]

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """What the tool returns; raises `Refused`."""
        deed, _, noun = tool.partition("_")
        own: Callable[..., Any] | None = getattr(self, tool, None)
        if own is not None:
            return own(**arguments)
        if deed in ("create", "attach", "add"):
            return self._create(_table(noun), arguments)
        if deed == "modify":
            return self._modify(_table(noun), dict(arguments))
        if deed == "delete":
            return self._delete(_table(noun), *arguments.values())
        return self._find(noun, dict(arguments))

    # -- what all kinds of rows have in common

    def _create(self, table: str, values: dict[str, Any]) -> Row:
        row = {**COLUMNS[table], **values}
        self._check(table, "", row)
        self._made += 1
        which = f"made-{self._made:03}"
        self.tables[table][which] = row
        return self._told(table, which)

    def _modify(self, table: str, values: dict[str, Any]) -> Row:
        which = values.pop(ID_OF[table])
        before = self._row(table, which)
        if table == "opportunities" and before["stage"] in CLOSED:
            raise Refused(f"{which} is closed")
        status = values.get("status")
        if table in ("quotes", "contracts") and status not in (
            None,
            *NEXT.get((table, before["status"]), ()),
        ):
            raise Refused(f"{which} cannot become {status}")
        if table == "quotes" and "amount" in values and before["status"] != "draft":
            raise Refused("only the amount of a draft can be changed")
        if not values:
            raise Refused("nothing to change")
        row = {**before, **values}
        self._check(table, which, row)
        self.tables[table][which] = row
        return self._told(table, which)

    def _delete(self, table: str, which: str) -> Row:
        self._row(table, which)
        holding = {
            "clients": ("opportunities", "contracts"),
            "opportunities": ("quotes",),
            "quotes": ("contracts",),
        }.get(table, ())
        for other in holding:
            if any(row.get(ID_OF[table]) == which for row in self.tables[other].values()):
                raise Refused(f"{which} still has {other}: it cannot be deleted")
        del self.tables[table][which]
        for other, rows in self.tables.items():
            for inner, row in list(rows.items()):
                if other in ("contacts", "documents", "notes") and row.get(ID_OF[table]) == which:
                    del rows[inner]
        return {"deleted": True, ID_OF[table]: which}

    def _find(self, noun: str, wanted: dict[str, Any]) -> list[Row]:
        least, before = wanted.pop("min_amount", 0), wanted.pop("ending_before", "9999")
        part = wanted.pop("name", "").lower()
        rows = [
            self._told(noun, which)
            for which, row in self.tables[noun].items()
            if all(row[column] == value for column, value in wanted.items())
            and part in str(row.get("name", "")).lower()
            and row.get("amount", least) >= least
            and row.get("end_date", "") < before
        ]
        return sorted(rows, key=_ORDER[noun])

    def _check(self, table: str, which: str, row: Row) -> None:
        """What the schema promises of every row."""
        for parent, column in ID_OF.items():
            if row.get(column) is not None and row[column] not in self.tables[parent]:
                raise Refused(f"there is no {column} {row[column]}")
        for columns in UNIQUE.get(table, ()):
            said = [row[column] for column in columns]
            for other, there in self.tables[table].items():
                if other != which and None not in said and said == [there[column] for column in columns]:
                    raise Refused(f"a row with {columns} {said} already exists")
        if table == "contacts" and row["is_primary"]:
            for other, there in self.tables[table].items():
                if other != which and there["client_id"] == row["client_id"] and there["is_primary"]:
                    raise Refused(f"{row['client_id']} already has a primary contact")
        if not 0 <= row.get("probability", 0) <= 100:
            raise Refused("probability")
        if table in ("quotes", "contracts") and row["amount" if table == "quotes" else "value"] <= 0:
            raise Refused("amount_check")
        if table == "contracts" and row["end_date"] <= row["start_date"]:
            raise Refused("ends_after_it_starts")

    def _row(self, table: str, which: str) -> Row:
        if which not in self.tables[table]:
            raise Refused(f"there is no {ID_OF[table]} {which}")
        return self.tables[table][which]

    def _told(self, table: str, which: str) -> Row:
        return {ID_OF[table]: which, **self.tables[table][which]}

    def _of(self, table: str, column: str, value: str) -> list[str]:
        return [which for which, row in self.tables[table].items() if row[column] == value]

    # -- tools with rules of their own

    def get_client(self, client_id: str) -> Row:
        self._row("clients", client_id)
        tables = ("contacts", "opportunities", "contracts", "documents", "notes")
        counts = {table: len(self._of(table, "client_id", client_id)) for table in tables}
        return {**self._told("clients", client_id), **counts}

    def list_contacts(self, client_id: str) -> list[Row]:
        return self._under("contacts", client_id=client_id)

    def list_documents(self, client_id: str, **more: str) -> list[Row]:
        return self._under("documents", client_id=client_id, **more)

    def list_notes(self, client_id: str, **more: str) -> list[Row]:
        return self._under("notes", client_id=client_id, **more)

    def list_quotes(self, opportunity_id: str, **more: str) -> list[Row]:
        return self._under("quotes", opportunity_id=opportunity_id, **more)

    def _under(self, table: str, **wanted: str) -> list[Row]:
        """Of a client or a deal that must be there."""
        parent, which = next(iter(wanted.items()))
        self._row(next(name for name, of in ID_OF.items() if of == parent), which)
        return self._find(table, dict(wanted))

    def close_opportunity(self, opportunity_id: str, won: bool) -> Row:
        row = self._row("opportunities", opportunity_id)
        if row["stage"] in CLOSED:
            raise Refused(f"{opportunity_id} is closed")
        row.update(stage="closed_won" if won else "closed_lost", probability=100 if won else 0)
        return self._told("opportunities", opportunity_id)

    def pipeline_summary(self, **wanted: str) -> Row:
        rows = [row for row in self._find("opportunities", dict(wanted)) if row["stage"] not in CLOSED]
        weighted = sum(row["amount"] * row["probability"] for row in rows)
        return {
            "opportunities": len(rows),
            "amount": sum(row["amount"] for row in rows),
            "weighted_amount": _whole(weighted / 100),
        }

    def create_quote(self, opportunity_id: str, **values: Any) -> Row:
        if self._row("opportunities", opportunity_id)["stage"] in CLOSED:
            raise Refused(f"{opportunity_id} is closed")
        return self._create("quotes", {"opportunity_id": opportunity_id, **values})

    def compare_quotes(self, quote_ids: list[str]) -> Row:
        if len(quote_ids) < 2:
            raise Refused("at least two")
        rows = sorted(
            ({"quote_id": which, **self._row("quotes", which)} for which in quote_ids),
            key=lambda row: (row["amount"], row["title"]),
        )
        return {
            "cheapest_quote_id": rows[0]["quote_id"],
            "cheapest_title": rows[0]["title"],
            "dearest_quote_id": rows[-1]["quote_id"],
            "difference": rows[-1]["amount"] - rows[0]["amount"],
        }

    def create_contract(self, quote_id: str, start_date: str, end_date: str) -> Row:
        quote = self._row("quotes", quote_id)
        if self._of("contracts", "quote_id", quote_id):
            raise Refused(f"{quote_id} already has a contract")
        if quote["status"] != "approved":
            raise Refused(f"{quote_id} is not approved")
        client_id = self.tables["opportunities"][quote["opportunity_id"]]["client_id"]
        values = {"client_id": client_id, "quote_id": quote_id, "value": quote["amount"]}
        return self._create("contracts", {**values, "start_date": start_date, "end_date": end_date})

    def attach_document(self, client_id: str, **values: Any) -> Row:
        contract = self.tables["contracts"].get(values.get("contract_id", ""))
        if contract is not None and contract["client_id"] != client_id:
            raise Refused("belongs to another client")
        return self._create("documents", {"client_id": client_id, **values})

    def add_note(self, client_id: str, **values: Any) -> Row:
        deal = self.tables["opportunities"].get(values.get("opportunity_id", ""))
        if deal is not None and deal["client_id"] != client_id:
            raise Refused("belongs to another client")
        return self._create("notes", {"client_id": client_id, **values})


_ORDER: dict[str, Callable[[Row], Any]] = {
    "companies": lambda row: row["name"],
    "clients": lambda row: row["name"],
    "contacts": lambda row: (not row["is_primary"], row["last_name"]),
    "opportunities": lambda row: (-row["amount"], row["name"]),
    "quotes": lambda row: (row["amount"], row["title"]),
    "contracts": lambda row: (row["end_date"], row["contract_id"]),
    "documents": lambda row: row["name"],
    "notes": lambda row: 0,  # as they were written
}


def _table(noun: str) -> str:
    return ENTITIES[noun.capitalize()]


def _whole(value: float) -> float | int:
    return int(value) if value == int(value) else round(value, 2)
