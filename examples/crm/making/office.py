"""Conversations about documents and notes, and reports that change nothing."""

from __future__ import annotations

from functools import partial

from making.story import Story, Turns, in_any_order
from making.world import OWNERS

# -- records


def records(s: Story) -> Turns:
    client = s.seed_client()
    old = s.seed(
        "Document", f"DO-{100 + s.number}", client_id=client, name="old-price-list.pdf", kind="other"
    )
    s.seed("Document", f"DO-{400 + s.number}", client_id=client, name="terms.pdf", kind="agreement")
    note = s.seed("Note", f"NO-{100 + s.number}", client_id=client, body=s.remark(0), author="lee")
    yield from in_any_order(
        s,
        partial(_documents_filed, s, client),
        partial(_document_removed, s, client, old),
        partial(_notes_kept, s, client, note),
    )
    s.say_several(f"Thank you, that is all for {s.name}.")
    yield


def _documents_filed(s: Story, client: str) -> Turns:
    name = f"specification-{s.number}.pdf"
    s.say(
        s.pick(
            f"File {name} as a specification with {s.name} ({client}).",
            f"Please attach the specification {name} to client {client}, {s.name}.",
        ),
        "attach_document",
        {"client_id": client, "name": name, "kind": "specification"},
    )
    yield
    s.say(
        f"And attach terms.pdf to {client} as an agreement.",
        "attach_document",
        {"client_id": client, "name": "terms.pdf", "kind": "agreement"},
        refused="already exists",
    )
    yield
    s.say_several(
        f"Add the invoices invoice-{s.number}-1.pdf and invoice-{s.number}-2.pdf to {client}.",
        ("attach_document", {"client_id": client, "name": f"invoice-{s.number}-1.pdf", "kind": "invoice"}),
        ("attach_document", {"client_id": client, "name": f"invoice-{s.number}-2.pdf", "kind": "invoice"}),
    )
    yield


def _document_removed(s: Story, client: str, document: str) -> Turns:
    names = [row["name"] for row in s.crm.call("list_documents", {"client_id": client})]
    s.say(
        f"Which documents do we have on {s.name} ({client})?",
        "list_documents",
        {"client_id": client},
        reply=f"These: {', '.join(names)}.",
        answers=names,
    )
    yield
    s.say(f"Delete {document}, it is outdated.", "delete_document", {"document_id": document})
    yield
    s.say(
        f"Please delete {document} once more, to be sure.",
        "delete_document",
        {"document_id": document},
        refused="there is no",
    )
    yield


def _notes_kept(s: Story, client: str, note: str) -> Turns:
    added = s.say(
        f"Note for {s.name} ({client}), by omar: {s.remark(3)}",
        "add_note",
        {"client_id": client, "body": s.remark(3), "author": "omar"},
    )
    yield
    rows = s.crm.call("list_notes", {"client_id": client})
    told = " ".join(row["body"] for row in rows)
    s.say(
        f"Read me the notes on {client}.",
        "list_notes",
        {"client_id": client},
        reply=f"The notes say: {told}",
        judged=True,
    )
    yield
    s.say(f"Remove the older note, {note}.", "delete_note", {"note_id": note})
    yield
    s.say("And the one that I dictated, too.", "delete_note", {"note_id": added + "note_id}}"})
    yield


# -- reporting


def reporting(s: Story) -> Turns:
    owner = s.pick(*OWNERS)
    client = s.seed_client(owner=owner)
    person = s.person(1)
    s.seed("Contact", f"CT-{100 + s.number}", client_id=client, **person, is_primary=True)
    s.seed("Contact", f"CT-{400 + s.number}", client_id=client, **s.person(2))
    deal = s.seed_deal(client, owner=owner, probability=20)
    s.seed_deal(client, place=4, stage="proposal", owner=owner, probability=50)
    amount = s.amount()
    s.seed("Quote", f"QU-{100 + s.number}", opportunity_id=deal, title="Small", amount=amount, status="sent")
    s.seed("Quote", f"QU-{400 + s.number}", opportunity_id=deal, title="Large", amount=2 * amount)
    yield from in_any_order(
        s,
        partial(_report_on_deals, s, client, owner),
        partial(_report_on_people, s, client),
        partial(_report_on_quotes, s, deal),
        partial(_report_on_companies, s),
    )


def _report_on_deals(s: Story, client: str, owner: str) -> Turns:
    summary = s.crm.call("pipeline_summary", {"client_id": client})
    s.say(
        f"How much is in the pipeline of {s.name} ({client})?",
        "pipeline_summary",
        {"client_id": client},
        reply=f"{summary['amount']} in {summary['opportunities']} open deals.",
        answers=[summary["amount"], summary["opportunities"]],
    )
    yield
    rows = s.crm.call("search_opportunities", {"client_id": client, "stage": "proposal"})
    s.say(
        f"Which deal of {client} is in the proposal stage?",
        "search_opportunities",
        {"client_id": client, "stage": "proposal"},
        reply=f"{rows[0]['name']}, over {rows[0]['amount']}.",
        answers=[rows[0]["name"]],
    )
    yield
    s.sum_up(
        f"Put the pipeline of {s.name} into one sentence for my manager.",
        f"{s.name} has {summary['opportunities']} open deals over {summary['amount']} in all.",
    )
    yield
    whole = s.crm.call("pipeline_summary", {"owner": owner})
    s.say(
        f"And what does {owner} have in the pipeline, over all clients?",
        "pipeline_summary",
        {"owner": owner},
        reply=f"{owner} has {whole['amount']} in the pipeline.",
        answers=[whole["amount"]],
    )
    yield


def _report_on_people(s: Story, client: str) -> Turns:
    found = s.say(
        f"Find the client {s.name} and tell me its status.",
        "search_clients",
        {"name": s.name},
        reply=f"{s.name} is active.",
        answers=["active"],
    )
    yield
    row = s.crm.call("list_contacts", {"client_id": client})[0]
    s.say(
        "Who is their primary contact, with the e-mail address?",
        "list_contacts",
        {"client_id": found + "client_id}}"},
        reply=f"{row['first_name']} {row['last_name']}, {row['email']}.",
        answers=[row["last_name"], row["email"]],
    )
    yield
    s.say(
        "Does that client have any contracts?",
        "search_contracts",
        {"client_id": found + "client_id}}"},
        reply=f"No, {s.name} has no contracts.",
        judged=True,
    )
    yield


def _report_on_quotes(s: Story, deal: str) -> Turns:
    rows = s.crm.call("list_quotes", {"opportunity_id": deal})
    s.say(
        f"What is the cheapest quote for {deal} of {s.name}?",
        "list_quotes",
        {"opportunity_id": deal},
        reply=f"{rows[0]['title']}, {rows[0]['amount']}.",
        answers=[rows[0]["title"]],
    )
    yield
    ids = [row["quote_id"] for row in rows]
    compared = s.crm.call("compare_quotes", {"quote_ids": ids})
    s.say(
        f"How far apart are {ids[0]} and {ids[1]}?",
        "compare_quotes",
        {"quote_ids": ids},
        reply=f"They are {compared['difference']} apart.",
        answers=[compared["difference"]],
    )
    yield
    s.say(
        "Show me the quotes of opportunity OP-9999.",
        "list_quotes",
        {"opportunity_id": "OP-9999"},
        refused="there is no",
    )
    yield


def _report_on_companies(s: Story) -> Turns:
    country = s.pick("DE", "FR", "US")
    found = s.crm.call("search_companies", {"country": country})
    s.say(
        f"{s.name} looks for a supplier. Which companies in {country} do we know?",
        "search_companies",
        {"country": country},
        reply=f"We know {found[0]['name']}.",
        answers=[found[0]["name"]],
    )
    yield
