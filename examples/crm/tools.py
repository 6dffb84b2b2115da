"""The tools of the CRM: 32 of them, each over a connection to the conversation's own database.

A call that raises is undone, and the agent is told the message. So messages say what to do about it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import psycopg
from psycopg import errors, sql
from psycopg.rows import dict_row

from evalve.conversations import tool

Connection = psycopg.AsyncConnection[Any]
Row = dict[str, Any]
CompanyKind = Literal["customer", "partner", "vendor", "competitor"]
ClientStatus = Literal["prospect", "active", "inactive", "churned"]
Stage = Literal["qualification", "proposal", "negotiation", "closed_won", "closed_lost"]
OpenStage = Literal["qualification", "proposal", "negotiation"]
QuoteStatus = Literal["draft", "sent", "approved", "rejected", "cancelled"]
ContractStatus = Literal["pending", "active", "expired", "terminated"]
DocumentKind = Literal["proposal", "agreement", "invoice", "specification", "other"]

NOUNS = {
    "companies": "company",
    "clients": "client",
    "contacts": "contact",
    "opportunities": "opportunity",
    "quotes": "quote",
    "contracts": "contract",
    "documents": "document",
    "notes": "note",
}
FINDERS = {
    "companies": "search_companies",
    "clients": "search_clients",
    "contacts": "list_contacts",
    "opportunities": "search_opportunities",
    "quotes": "list_quotes",
    "contracts": "search_contracts",
    "documents": "list_documents",
    "notes": "list_notes",
}
QUOTE_STEPS = {"draft": ("sent", "cancelled"), "sent": ("approved", "rejected", "cancelled")}
CONTRACT_STEPS = {"pending": ("active", "terminated"), "active": ("expired", "terminated")}


# -- companies


@tool
async def create_company(
    connection: Connection,
    name: str,
    kind: CompanyKind = "customer",
    industry: str | None = None,
    country: str | None = None,
    employees: int | None = None,
) -> Row:
    """Create a company. `country` has two letters, as in DE."""
    return await _insert(
        connection, "companies", name=name, kind=kind, industry=industry, country=country, employees=employees
    )


@tool
async def modify_company(
    connection: Connection,
    company_id: str,
    name: str | None = None,
    kind: CompanyKind | None = None,
    industry: str | None = None,
    employees: int | None = None,
) -> Row:
    """Change what is given of a company; the rest stays."""
    return await _update(
        connection, "companies", company_id, name=name, kind=kind, industry=industry, employees=employees
    )


@tool
async def search_companies(
    connection: Connection, name: str | None = None, industry: str | None = None, country: str | None = None
) -> list[Row]:
    """Find companies by a part of their name, by industry, by country; without arguments, all of them."""
    return await _search(
        connection, "companies", "name", like={"name": name}, industry=industry, country=country
    )


# -- clients


@tool
async def create_client(
    connection: Connection,
    name: str,
    email: str | None = None,
    phone: str | None = None,
    status: ClientStatus = "prospect",
    owner: str | None = None,
    company_id: str | None = None,
) -> Row:
    """Create a client. `owner` is who looks after it; `company_id` the company that it belongs to."""
    return await _insert(
        connection,
        "clients",
        name=name,
        email=email,
        phone=phone,
        status=status,
        owner=owner,
        company_id=company_id,
    )


@tool
async def modify_client(
    connection: Connection,
    client_id: str,
    name: str | None = None,
    email: str | None = None,
    phone: str | None = None,
    status: ClientStatus | None = None,
    owner: str | None = None,
    company_id: str | None = None,
) -> Row:
    """Change what is given of a client; the rest stays."""
    changes = {"name": name, "email": email, "phone": phone, "status": status, "owner": owner}
    return await _update(connection, "clients", client_id, **changes, company_id=company_id)


@tool
async def delete_client(connection: Connection, client_id: str) -> Row:
    """Delete a client with its contacts, documents and notes. One with opportunities or contracts stays."""
    await _get(connection, "clients", client_id)
    held = await _counts(connection, client_id, "opportunities", "contracts")
    if held:
        raise ValueError(f"client {client_id} still has {' and '.join(held)}; it cannot be deleted")
    return await _delete(connection, "clients", client_id)


@tool
async def get_client(connection: Connection, client_id: str) -> Row:
    """A client, with how many contacts, opportunities, contracts, documents and notes it has."""
    client = await _get(connection, "clients", client_id)
    for table in ("contacts", "opportunities", "contracts", "documents", "notes"):
        client[table] = await _count(connection, table, client_id)
    return client


@tool
async def search_clients(
    connection: Connection,
    name: str | None = None,
    status: ClientStatus | None = None,
    owner: str | None = None,
    company_id: str | None = None,
) -> list[Row]:
    """Find clients by a part of their name, by status, by owner, by company; without arguments, all."""
    return await _search(
        connection, "clients", "name", like={"name": name}, status=status, owner=owner, company_id=company_id
    )


# -- contacts


@tool
async def create_contact(
    connection: Connection,
    client_id: str,
    first_name: str,
    last_name: str,
    title: str | None = None,
    email: str | None = None,
    phone: str | None = None,
    is_primary: bool = False,
) -> Row:
    """Add a person to a client. A client has one primary contact at most."""
    await _get(connection, "clients", client_id)
    if is_primary:
        await _refuse_second_primary(connection, client_id)
    return await _insert(
        connection,
        "contacts",
        client_id=client_id,
        first_name=first_name,
        last_name=last_name,
        title=title,
        email=email,
        phone=phone,
        is_primary=is_primary,
    )


@tool
async def modify_contact(
    connection: Connection,
    contact_id: str,
    title: str | None = None,
    email: str | None = None,
    phone: str | None = None,
    is_primary: bool | None = None,
) -> Row:
    """Change what is given of a contact; the rest stays."""
    contact = await _get(connection, "contacts", contact_id)
    if is_primary and not contact["is_primary"]:
        await _refuse_second_primary(connection, contact["client_id"])
    return await _update(
        connection, "contacts", contact_id, title=title, email=email, phone=phone, is_primary=is_primary
    )


@tool
async def delete_contact(connection: Connection, contact_id: str) -> Row:
    """Delete a contact."""
    return await _delete(connection, "contacts", contact_id)


@tool
async def list_contacts(connection: Connection, client_id: str) -> list[Row]:
    """The contacts of a client, the primary one first."""
    await _get(connection, "clients", client_id)
    return await _search(connection, "contacts", "is_primary DESC, last_name", client_id=client_id)


# -- opportunities


@tool
async def create_opportunity(
    connection: Connection,
    client_id: str,
    name: str,
    amount: float,
    stage: OpenStage = "qualification",
    probability: int = 10,
    close_date: str | None = None,
    owner: str | None = None,
) -> Row:
    """Open a deal with a client. `close_date` is when it is expected to close, as YYYY-MM-DD."""
    await _get(connection, "clients", client_id)
    return await _insert(
        connection,
        "opportunities",
        client_id=client_id,
        name=name,
        amount=_money(amount),
        stage=stage,
        probability=probability,
        close_date=_date("close_date", close_date),
        owner=owner,
    )


@tool
async def modify_opportunity(
    connection: Connection,
    opportunity_id: str,
    name: str | None = None,
    stage: OpenStage | None = None,
    amount: float | None = None,
    probability: int | None = None,
    close_date: str | None = None,
    owner: str | None = None,
) -> Row:
    """Change what is given of an open deal; the rest stays. Deals are closed by close_opportunity."""
    await _open_opportunity(connection, opportunity_id)
    return await _update(
        connection,
        "opportunities",
        opportunity_id,
        name=name,
        stage=stage,
        amount=_money(amount),
        probability=probability,
        close_date=_date("close_date", close_date),
        owner=owner,
    )


@tool
async def close_opportunity(connection: Connection, opportunity_id: str, won: bool) -> Row:
    """Close a deal as won or as lost. That is final."""
    await _open_opportunity(connection, opportunity_id)
    stage, probability = ("closed_won", 100) if won else ("closed_lost", 0)
    return await _update(connection, "opportunities", opportunity_id, stage=stage, probability=probability)


@tool
async def delete_opportunity(connection: Connection, opportunity_id: str) -> Row:
    """Delete a deal with its notes. One with quotes stays."""
    await _get(connection, "opportunities", opportunity_id)
    count = len(await _search(connection, "quotes", "title", opportunity_id=opportunity_id))
    if count:
        raise ValueError(
            f"opportunity {opportunity_id} still has {_counted(count, 'quotes')}; delete them, or close it"
        )
    return await _delete(connection, "opportunities", opportunity_id)


@tool
async def search_opportunities(
    connection: Connection,
    client_id: str | None = None,
    stage: Stage | None = None,
    owner: str | None = None,
    min_amount: float | None = None,
) -> list[Row]:
    """Find deals by client, stage, owner and least amount, the largest first; without arguments, all."""
    found = await _search(
        connection, "opportunities", "amount DESC, name", client_id=client_id, stage=stage, owner=owner
    )
    return [row for row in found if min_amount is None or row["amount"] >= min_amount]


@tool
async def pipeline_summary(
    connection: Connection, owner: str | None = None, client_id: str | None = None
) -> Row:
    """Open deals: how many, their amount in all, and weighted by their probability."""
    rows = await _rows(
        connection,
        """SELECT count(*) AS opportunities, coalesce(sum(amount), 0) AS amount,
               coalesce(round(sum(amount * probability / 100), 2), 0) AS weighted_amount
           FROM opportunities WHERE stage NOT IN ('closed_won', 'closed_lost')
               AND (%(owner)s::text IS NULL OR owner = %(owner)s)
               AND (%(client)s::text IS NULL OR client_id = %(client)s)""",
        {"owner": owner, "client": client_id},
    )
    return rows[0]


# -- quotes


@tool
async def create_quote(
    connection: Connection, opportunity_id: str, title: str, amount: float, valid_until: str | None = None
) -> Row:
    """Draft a quote for an open deal. `valid_until` is a day, as YYYY-MM-DD."""
    await _open_opportunity(connection, opportunity_id)
    return await _insert(
        connection,
        "quotes",
        opportunity_id=opportunity_id,
        title=title,
        amount=_money(amount),
        valid_until=_date("valid_until", valid_until),
    )


@tool
async def modify_quote(
    connection: Connection,
    quote_id: str,
    status: QuoteStatus | None = None,
    amount: float | None = None,
    valid_until: str | None = None,
) -> Row:
    """Change a quote. Drafts are sent or cancelled, sent ones approved, rejected or cancelled; amounts are
    changed in drafts."""
    quote = await _get(connection, "quotes", quote_id)
    _refuse_step("quote", quote_id, quote["status"], status, QUOTE_STEPS)
    if amount is not None and quote["status"] != "draft":
        raise ValueError(f"quote {quote_id} is {quote['status']}; only the amount of a draft can be changed")
    until = _date("valid_until", valid_until)
    return await _update(
        connection, "quotes", quote_id, status=status, amount=_money(amount), valid_until=until
    )


@tool
async def delete_quote(connection: Connection, quote_id: str) -> Row:
    """Delete a quote that is not under contract."""
    await _get(connection, "quotes", quote_id)
    for contract in await _search(connection, "contracts", "id", quote_id=quote_id):
        raise ValueError(
            f"quote {quote_id} is under contract {contract['contract_id']}; it cannot be deleted"
        )
    return await _delete(connection, "quotes", quote_id)


@tool
async def list_quotes(
    connection: Connection, opportunity_id: str, status: QuoteStatus | None = None
) -> list[Row]:
    """The quotes of a deal, the cheapest first."""
    await _get(connection, "opportunities", opportunity_id)
    return await _search(connection, "quotes", "amount, title", opportunity_id=opportunity_id, status=status)


@tool
async def compare_quotes(connection: Connection, quote_ids: list[str]) -> Row:
    """The cheapest and the dearest of several quotes, and how far they are apart."""
    if len(quote_ids) < 2:
        raise ValueError("compare_quotes needs at least two quotes")
    quotes = sorted([await _get(connection, "quotes", one) for one in quote_ids], key=_by_amount)
    cheapest, dearest = quotes[0], quotes[-1]
    return {
        "cheapest_quote_id": cheapest["quote_id"],
        "cheapest_title": cheapest["title"],
        "dearest_quote_id": dearest["quote_id"],
        "difference": round(dearest["amount"] - cheapest["amount"], 2),
    }


# -- contracts


@tool
async def create_contract(connection: Connection, quote_id: str, start_date: str, end_date: str) -> Row:
    """Make a contract of an approved quote, for its amount. Days are written as YYYY-MM-DD."""
    quote = await _get(connection, "quotes", quote_id)
    for contract in await _search(connection, "contracts", "id", quote_id=quote_id):
        raise ValueError(f"quote {quote_id} already has a contract ({contract['contract_id']})")
    if quote["status"] != "approved":
        raise ValueError(f"quote {quote_id} is {quote['status']}; a contract needs one that is approved")
    opportunity = await _get(connection, "opportunities", quote["opportunity_id"])
    return await _insert(
        connection,
        "contracts",
        client_id=opportunity["client_id"],
        quote_id=quote_id,
        value=quote["amount"],
        start_date=_date("start_date", start_date),
        end_date=_date("end_date", end_date),
    )


@tool
async def modify_contract(
    connection: Connection,
    contract_id: str,
    status: ContractStatus | None = None,
    end_date: str | None = None,
) -> Row:
    """Change a contract. Pending ones become active, active ones expire, both can be terminated."""
    contract = await _get(connection, "contracts", contract_id)
    _refuse_step("contract", contract_id, contract["status"], status, CONTRACT_STEPS)
    until = _date("end_date", end_date)
    return await _update(connection, "contracts", contract_id, status=status, end_date=until)


@tool
async def search_contracts(
    connection: Connection,
    client_id: str | None = None,
    status: ContractStatus | None = None,
    ending_before: str | None = None,
) -> list[Row]:
    """Find contracts by client, by status, by the day before which they end; the first to end first."""
    found = await _search(connection, "contracts", "end_date, id", client_id=client_id, status=status)
    until = _date("ending_before", ending_before)
    return [row for row in found if until is None or date.fromisoformat(row["end_date"]) < until]


# -- documents and notes


@tool
async def attach_document(
    connection: Connection,
    client_id: str,
    name: str,
    kind: DocumentKind = "other",
    contract_id: str | None = None,
) -> Row:
    """File a document with a client, and with one of its contracts."""
    await _get(connection, "clients", client_id)
    if contract_id is not None:
        contract = await _get(connection, "contracts", contract_id)
        if contract["client_id"] != client_id:
            raise ValueError(f"contract {contract_id} belongs to {contract['client_id']}, not to {client_id}")
    return await _insert(
        connection, "documents", client_id=client_id, name=name, kind=kind, contract_id=contract_id
    )


@tool
async def delete_document(connection: Connection, document_id: str) -> Row:
    """Delete a document."""
    return await _delete(connection, "documents", document_id)


@tool
async def list_documents(
    connection: Connection, client_id: str, kind: DocumentKind | None = None
) -> list[Row]:
    """The documents of a client, by name."""
    await _get(connection, "clients", client_id)
    return await _search(connection, "documents", "name", client_id=client_id, kind=kind)


@tool
async def add_note(
    connection: Connection,
    client_id: str,
    body: str,
    opportunity_id: str | None = None,
    author: str | None = None,
) -> Row:
    """Write a note about a client, or about one of its deals."""
    await _get(connection, "clients", client_id)
    if opportunity_id is not None:
        deal = await _get(connection, "opportunities", opportunity_id)
        if deal["client_id"] != client_id:
            raise ValueError(
                f"opportunity {opportunity_id} belongs to {deal['client_id']}, not to {client_id}"
            )
    return await _insert(
        connection, "notes", client_id=client_id, body=body, opportunity_id=opportunity_id, author=author
    )


@tool
async def delete_note(connection: Connection, note_id: str) -> Row:
    """Delete a note."""
    return await _delete(connection, "notes", note_id)


@tool
async def list_notes(connection: Connection, client_id: str, opportunity_id: str | None = None) -> list[Row]:
    """The notes about a client or a deal, in the order in which they were written."""
    await _get(connection, "clients", client_id)
    return await _search(
        connection, "notes", "created_at, length(id), id", client_id=client_id, opportunity_id=opportunity_id
    )


# -- rules that several tools share


async def _open_opportunity(connection: Connection, opportunity_id: str) -> Row:
    found = await _get(connection, "opportunities", opportunity_id)
    if found["stage"] in ("closed_won", "closed_lost"):
        raise ValueError(f"opportunity {opportunity_id} is closed ({found['stage']}); open a new one instead")
    return found


async def _refuse_second_primary(connection: Connection, client_id: str) -> None:
    for contact in await _search(connection, "contacts", "id", client_id=client_id, is_primary=True):
        raise ValueError(
            f"client {client_id} already has a primary contact ({contact['contact_id']}); change that one"
        )


def _refuse_step(
    noun: str, which: str, before: str, after: str | None, steps: Mapping[str, tuple[str, ...]]
) -> None:
    if after is not None and after not in steps.get(before, ()):
        may_be = " or ".join(steps.get(before, ())) or "nothing else"
        raise ValueError(f"{noun} {which} cannot become {after}: it is {before}, and can become {may_be}")


def _by_amount(row: Row) -> tuple[float, str]:
    return row["amount"], row["title"]


def _money(amount: float | None) -> Decimal | None:
    return None if amount is None else Decimal(str(amount))


def _date(name: str, text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; write a day as YYYY-MM-DD") from None


# -- rows


async def _insert(connection: Connection, table: str, **values: Any) -> Row:
    given = {name: value for name, value in values.items() if value is not None}
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING *").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, given)),
        sql.SQL(", ").join(map(sql.Placeholder, given)),
    )
    async with _in_words(table, given):
        rows = await _rows(connection, statement, given)
    return _named(table, rows[0])


async def _update(connection: Connection, table: str, which: str, **values: Any) -> Row:
    await _get(connection, table, which)
    given = {name: value for name, value in values.items() if value is not None}
    if not given:
        raise ValueError(
            f"nothing to change of {NOUNS[table]} {which}: say at least one of {', '.join(values)}"
        )
    changes: list[sql.Composable] = [
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in given
    ]
    if table in ("clients", "opportunities"):
        changes.append(sql.SQL("updated_at = now()"))
    statement = sql.SQL("UPDATE {} SET {} WHERE id = {} RETURNING *").format(
        sql.Identifier(table), sql.SQL(", ").join(changes), sql.Placeholder("which")
    )
    async with _in_words(table, given):
        rows = await _rows(connection, statement, {**given, "which": which})
    return _named(table, rows[0])


async def _delete(connection: Connection, table: str, which: str) -> Row:
    await _get(connection, table, which)
    statement = sql.SQL("DELETE FROM {} WHERE id = %s").format(sql.Identifier(table))
    await connection.execute(statement, (which,))
    return {"deleted": True, f"{NOUNS[table]}_id": which}


async def _get(connection: Connection, table: str, which: str) -> Row:
    statement = sql.SQL("SELECT * FROM {} WHERE id = %s").format(sql.Identifier(table))
    rows = await _rows(connection, statement, (which,))
    if not rows:
        raise ValueError(f"there is no {NOUNS[table]} {which!r}; {FINDERS[table]} finds them")
    return _named(table, rows[0])


async def _search(
    connection: Connection,
    table: str,
    order: str,
    *,
    like: Mapping[str, str | None] | None = None,
    **equal: Any,
) -> list[Row]:
    conditions: list[sql.Composable] = [sql.SQL("true")]
    values = []
    for name, part in (like or {}).items():
        if part is not None:
            conditions.append(sql.SQL("strpos(lower({}), lower(%s)) > 0").format(sql.Identifier(name)))
            values.append(part)
    for name, value in equal.items():
        if value is not None:
            conditions.append(sql.SQL("{}::text = %s::text").format(sql.Identifier(name)))
            values.append(value)
    statement = sql.SQL("SELECT * FROM {} WHERE {} ORDER BY {}").format(
        sql.Identifier(table), sql.SQL(" AND ").join(conditions), sql.SQL(order)
    )
    return [_named(table, row) for row in await _rows(connection, statement, values)]


async def _count(connection: Connection, table: str, client_id: str) -> int:
    statement = sql.SQL("SELECT count(*) AS n FROM {} WHERE client_id = %s").format(sql.Identifier(table))
    rows = await _rows(connection, statement, (client_id,))
    return int(rows[0]["n"])


async def _counts(connection: Connection, client_id: str, *tables: str) -> list[str]:
    counts = {table: await _count(connection, table, client_id) for table in tables}
    return [_counted(count, table) for table, count in counts.items() if count]


def _counted(count: int, table: str) -> str:
    return f"{count} {NOUNS[table] if count == 1 else table}"


async def _rows(connection: Connection, statement: Any, values: Any) -> list[Row]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement, values)
        return [{name: _plain(value) for name, value in row.items()} for row in await cursor.fetchall()]


def _named(table: str, row: Row) -> Row:
    """As agents see it: `client_id` instead of `id`, and without the times of changes."""
    shown = {name: value for name, value in row.items() if name != "id" and not name.endswith("_at")}
    return {f"{NOUNS[table]}_id": row["id"], **shown}


def _plain(value: Any) -> Any:
    """As JSON has it: whole amounts as whole numbers."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.isoformat() if isinstance(value, date) else value


@asynccontextmanager
async def _in_words(table: str, given: Mapping[str, Any]) -> AsyncIterator[None]:
    """What the database refuses, as a sentence that helps an agent."""
    try:
        yield
    except errors.UniqueViolation as error:
        detail = (error.diag.message_detail or "").removeprefix("Key ").removesuffix(" already exists.")
        raise ValueError(f"a {NOUNS[table]} with {detail} already exists") from error
    except errors.ForeignKeyViolation as error:
        raise ValueError(
            f"this {NOUNS[table]} refers to what is not there: {error.diag.message_detail}"
        ) from error
    except errors.CheckViolation as error:
        said = ", ".join(f"{name}={value!s}" for name, value in given.items())
        raise ValueError(f"no {NOUNS[table]} can be so ({error.diag.constraint_name}): {said}") from error
    except errors.DataError as error:
        raise ValueError(f"the {NOUNS[table]} is not understood: {error.diag.message_primary}") from error
