"""Seven kinds of work in a CRM. Each yields after every turn, so that a conversation may end anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from story import Story
from world import COUNTRIES, DEALS, INDUSTRIES, OWNERS, TITLES

Turns = Iterator[None]


def in_any_order(s: Story, *parts: Callable[[], Turns]) -> Turns:
    """Parts that do not depend on each other."""
    for part in s.chance.sample(parts, len(parts)):
        yield from part()


# -- client_onboarding


def client_onboarding(s: Story) -> Turns:
    slug, owner = s.name.lower().replace(" ", "-"), s.pick(*OWNERS)
    mail = f"hello@{slug}.example"
    created = s.say(
        s.pick(
            f"Please create a client named {s.name}, e-mail {mail}. {owner} looks after it.",
            f"We have a new prospect: {s.name}. Their address is {mail}, the owner is {owner}.",
        ),
        "create_client",
        {"name": s.name, "email": mail, "owner": owner},
    )
    client = created + "client_id}}"
    yield
    yield from in_any_order(
        s,
        partial(_first_people, s, client),
        partial(_their_company, s, client),
        partial(_first_deal, s, client),
        partial(_same_name_again, s),
    )
    s.say(
        f"How many contacts does {s.name} have now?",
        "get_client",
        {"client_id": client},
        reply=f"{s.name} has {len(s.crm.list_contacts(s.resolved(client)))} contacts.",
        answers=[len(s.crm.list_contacts(s.resolved(client)))],
    )
    yield


def _first_people(s: Story, client: str) -> Turns:
    first, second = s.person(1), s.person(2)
    title = s.pick(*TITLES)
    s.say(
        f"Their primary contact is {first['first_name']} {first['last_name']}, {title}, {first['email']}.",
        "create_contact",
        {"client_id": client, **first, "title": title, "is_primary": True},
    )
    yield
    s.say(
        f"Make {second['first_name']} {second['last_name']} ({second['email']}) a primary contact as well.",
        "create_contact",
        {"client_id": client, **second, "is_primary": True},
        refused="already has a primary contact",
    )
    yield
    third, fourth = s.person(3), s.person(4)
    s.say_several(
        f"Then add {third['first_name']} {third['last_name']} ({third['email']}) and "
        f"{fourth['first_name']} {fourth['last_name']} ({fourth['email']}) as ordinary contacts.",
        ("create_contact", {"client_id": client, **third}),
        ("create_contact", {"client_id": client, **fourth}),
    )
    yield


def _their_company(s: Story, client: str) -> Turns:
    industry, country = s.pick(*INDUSTRIES), s.pick(*COUNTRIES)
    company = s.say(
        f"They are part of {s.name} Group, a company in {industry}, country {country}; please enter it.",
        "create_company",
        {"name": f"{s.name} Group", "industry": industry, "country": country},
    )
    yield
    s.say(
        "Link the client to that company.",
        "modify_client",
        {"client_id": client, "company_id": company + "company_id}}"},
    )
    yield
    employees = s.chance.randrange(20, 900)
    s.say(
        f"The group has {employees} employees; please enter that, too.",
        "modify_company",
        {"company_id": company + "company_id}}", "employees": employees},
    )
    yield


def _first_deal(s: Story, client: str) -> Turns:
    amount, name = s.amount(), s.pick(*DEALS)
    deal = s.say(
        f"Open an opportunity '{name}' over {amount} with them.",
        "create_opportunity",
        {"client_id": client, "name": name, "amount": amount},
    )
    yield
    s.say(
        f"Note on that deal: {s.remark(1)}",
        "add_note",
        {"client_id": client, "body": s.remark(1), "opportunity_id": deal + "opportunity_id}}"},
    )
    yield


def _same_name_again(s: Story) -> Turns:
    s.say(
        f"Somebody else asks to create {s.name} as an active client; do it, please.",
        "create_client",
        {"name": s.name, "status": "active"},
        refused="already exists",
    )
    yield


# -- deal_pipeline


def deal_pipeline(s: Story) -> Turns:
    client = s.seed_client()
    small = s.seed_deal(client, amount=s.amount() // 4)
    large = s.seed_deal(client, place=4, stage="negotiation", amount=s.amount() + 250_000, probability=60)
    yield from in_any_order(
        s,
        partial(_find_and_advance, s, client),
        partial(_new_deal_won, s, client),
        partial(_deal_lost, s, client, small),
        partial(_weigh_deals, s, client, large),
    )


def _find_and_advance(s: Story, client: str) -> Turns:
    rows = s.crm.call("search_opportunities", {"client_id": client})
    found = s.say(
        s.pick(
            f"Which is the largest deal of {s.name} ({client})?",
            f"Look up the opportunities of {client}, {s.name}, and name the largest.",
        ),
        "search_opportunities",
        {"client_id": client},
        reply=f"The largest is {rows[0]['name']} over {rows[0]['amount']}.",
        answers=[rows[0]["name"], rows[0]["amount"]],
    )
    yield
    owner = s.pick(*(one for one in OWNERS if one != rows[0]["owner"]))
    s.say(
        f"Hand that one over to {owner}.",
        "modify_opportunity",
        {"opportunity_id": found + "opportunity_id}}", "owner": owner},
    )
    yield


def _new_deal_won(s: Story, client: str) -> Turns:
    amount, until = s.amount(), s.day(2027)
    deal = s.say(
        f"Open 'Expansion {s.number}' over {amount} for {s.name} ({client}); it should close on {until}.",
        "create_opportunity",
        {"client_id": client, "name": f"Expansion {s.number}", "amount": amount, "close_date": until},
    )
    which = deal + "opportunity_id}}"
    yield
    s.say(
        f"Expansion {s.number} is in negotiation now, at 70 percent.",
        "modify_opportunity",
        {"opportunity_id": which, "stage": "negotiation", "probability": 70},
    )
    yield
    s.say(
        f"We won Expansion {s.number}! Close it.",
        "close_opportunity",
        {"opportunity_id": which, "won": True},
    )
    yield
    s.say(
        f"Raise the amount of Expansion {s.number} to {amount + 5000}.",
        "modify_opportunity",
        {"opportunity_id": which, "amount": amount + 5000},
        refused="is closed",
    )
    yield


def _deal_lost(s: Story, client: str, deal: str) -> Turns:
    s.say(
        f"{s.name} has decided against us on {deal}: close it as lost.",
        "close_opportunity",
        {"opportunity_id": deal, "won": False},
    )
    yield
    s.say(
        f"Write a note on {deal} of client {client}: {s.remark(2)}",
        "add_note",
        {"client_id": client, "opportunity_id": deal, "body": s.remark(2)},
    )
    yield


def _weigh_deals(s: Story, client: str, deal: str) -> Turns:
    chance = s.chance.choice((65, 75, 80))
    s.say(
        f"Set the probability of {deal} ({s.name}) to {chance} percent.",
        "modify_opportunity",
        {"opportunity_id": deal, "probability": chance},
    )
    yield
    summary = s.crm.call("pipeline_summary", {"client_id": client})
    s.say(
        f"What is the weighted pipeline of client {client} now?",
        "pipeline_summary",
        {"client_id": client},
        reply=f"{summary['weighted_amount']}, from {summary['opportunities']} open deals.",
        answers=[summary["weighted_amount"]],
    )
    yield


# -- quoting


def quoting(s: Story) -> Turns:
    client = s.seed_client()
    deal = s.seed_deal(client, stage="proposal")
    lost = s.seed_deal(client, place=4, stage="closed_lost", probability=0)
    amount = s.amount()
    basic = s.seed(
        "Quote", f"QU-{100 + s.number}", opportunity_id=deal, title="Basic", amount=amount, status="sent"
    )
    plus = s.seed("Quote", f"QU-{400 + s.number}", opportunity_id=deal, title="Plus", amount=amount + 12_500)
    yield from in_any_order(
        s,
        partial(_quote_approved, s, deal),
        partial(_quotes_compared, s, deal, basic, plus),
        partial(_quote_rejected, s, basic),
        partial(_quote_too_late, s, lost),
    )


def _quote_approved(s: Story, deal: str) -> Turns:
    amount, until = s.amount(), s.day(2027)
    quote = s.say(
        s.pick(
            f"Draft a quote 'Premium' over {amount} for {deal} of {s.name}, valid until {until}.",
            f"{s.name} wants an offer for {deal}: title Premium, {amount}, valid until {until}.",
        ),
        "create_quote",
        {"opportunity_id": deal, "title": "Premium", "amount": amount, "valid_until": until},
    )
    which = quote + "quote_id}}"
    yield
    s.say(
        f"A small change before it goes out: make Premium {amount - 1000}.",
        "modify_quote",
        {"quote_id": which, "amount": amount - 1000},
    )
    yield
    s.say("Send the Premium quote.", "modify_quote", {"quote_id": which, "status": "sent"})
    yield
    s.say(
        f"Lower Premium to {amount - 2000} after all.",
        "modify_quote",
        {"quote_id": which, "amount": amount - 2000},
        refused="only the amount of a draft",
    )
    yield
    s.say("They accept Premium: approve it.", "modify_quote", {"quote_id": which, "status": "approved"})
    yield


def _quotes_compared(s: Story, deal: str, one: str, other: str) -> Turns:
    rows = s.crm.call("list_quotes", {"opportunity_id": deal})
    s.say(
        f"How many quotes are there for {deal} ({s.name})?",
        "list_quotes",
        {"opportunity_id": deal},
        reply=f"There are {len(rows)} quotes.",
        answers=[len(rows)],
    )
    yield
    compared = s.crm.call("compare_quotes", {"quote_ids": [one, other]})
    s.say(
        f"Compare {one} with {other} of {s.name}: which is cheaper, and by how much?",
        "compare_quotes",
        {"quote_ids": [one, other]},
        reply=f"{compared['cheapest_title']} is cheaper by {compared['difference']}.",
        answers=[compared["cheapest_title"], compared["difference"]],
    )
    yield
    s.say(f"We do not need {other} any more; delete it.", "delete_quote", {"quote_id": other})
    yield


def _quote_rejected(s: Story, quote: str) -> Turns:
    s.say(
        f"{s.name} turned down {quote}. Mark it as rejected.",
        "modify_quote",
        {"quote_id": quote, "status": "rejected"},
    )
    yield
    s.say(
        f"On second thoughts, approve {quote}.",
        "modify_quote",
        {"quote_id": quote, "status": "approved"},
        refused="cannot become approved",
    )
    yield


def _quote_too_late(s: Story, deal: str) -> Turns:
    amount = s.amount()
    s.say(
        f"Prepare another quote, 'Late offer' over {amount}, for {deal} of {s.name}.",
        "create_quote",
        {"opportunity_id": deal, "title": "Late offer", "amount": amount},
        refused="is closed",
    )
    yield


# -- contracting


def contracting(s: Story) -> Turns:
    client = s.seed_client()
    deal = s.seed_deal(client, stage="closed_won", probability=100)
    quotes = {}
    for place, status in ((1, "approved"), (4, "sent"), (6, "approved")):
        which = f"QU-{100 * place + s.number}"
        title = f"Offer {place}"
        quotes[place] = s.seed(
            "Quote", which, opportunity_id=deal, title=title, amount=s.amount(), status=status
        )
    value = s.crm.tables["quotes"][quotes[6]]["amount"]
    contract = s.seed(
        "Contract",
        f"CN-{100 + s.number}",
        client_id=client,
        quote_id=quotes[6],
        value=value,
        status="active",
        start_date="2025-01-01",
        end_date=s.day(2026),
    )
    yield from in_any_order(
        s,
        partial(_contract_made, s, client, quotes[1]),
        partial(_contract_extended, s, client, contract),
        partial(_contract_too_early, s, quotes[4]),
    )
    count = len(s.crm.call("search_contracts", {"client_id": client}))
    s.say(
        f"How many contracts does {s.name} ({client}) have?",
        "search_contracts",
        {"client_id": client},
        reply=f"{s.name} has {count} contracts.",
        answers=[count],
    )
    yield


def _contract_made(s: Story, client: str, quote: str) -> Turns:
    start, end = s.day(2027), s.day(2029)
    made = s.say(
        f"Turn the approved quote {quote} of {s.name} into a contract from {start} to {end}.",
        "create_contract",
        {"quote_id": quote, "start_date": start, "end_date": end},
    )
    which = made + "contract_id}}"
    yield
    s.say(
        "It is signed: activate the contract.", "modify_contract", {"contract_id": which, "status": "active"}
    )
    yield
    document = f"agreement-{s.number}.pdf"
    s.say(
        f"File {document} with it, as an agreement of client {client}.",
        "attach_document",
        {"client_id": client, "name": document, "kind": "agreement", "contract_id": which},
    )
    yield
    s.say(
        f"Make a second contract from {quote}, {start} to {end}.",
        "create_contract",
        {"quote_id": quote, "start_date": start, "end_date": end},
        refused="already has a contract",
    )
    yield


def _contract_extended(s: Story, client: str, contract: str) -> Turns:
    ends = s.crm.tables["contracts"][contract]["end_date"]
    found = s.say(
        f"When does the active contract of {s.name} ({client}) end?",
        "search_contracts",
        {"client_id": client, "status": "active"},
        reply=f"It ends on {ends}.",
        answers=[ends],
    )
    assert s.result(found)[0]["end_date"] == ends
    yield
    until = s.day(2028)
    s.say(
        f"Extend that contract to {until}.",
        "modify_contract",
        {"contract_id": found + "contract_id}}", "end_date": until},
    )
    yield
    s.say(
        f"No, let {contract} end on 2024-06-30.",
        "modify_contract",
        {"contract_id": contract, "end_date": "2024-06-30"},
        refused="ends_after_it_starts",
    )
    yield


def _contract_too_early(s: Story, quote: str) -> Turns:
    start, end = s.day(2027), s.day(2028)
    s.say(
        f"{s.name} is in a hurry: contract for {quote} from {start} to {end}, please.",
        "create_contract",
        {"quote_id": quote, "start_date": start, "end_date": end},
        refused="approved",
    )
    yield
    s.say(f"Then approve {quote} first.", "modify_quote", {"quote_id": quote, "status": "approved"})
    yield


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


# -- reporting: nothing is changed


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


# -- housekeeping


def housekeeping(s: Story) -> Turns:
    client = s.seed_client(owner="dana")
    first, second = s.person(1), s.person(2)
    title = s.pick(*TITLES)
    boss = s.seed("Contact", f"CT-{100 + s.number}", client_id=client, **first, title=title, is_primary=True)
    gone = s.seed("Contact", f"CT-{400 + s.number}", client_id=client, **second)
    deal = s.seed_deal(client)
    yield from in_any_order(
        s,
        partial(_data_corrected, s, client, boss),
        partial(_person_left, s, client, boss, gone),
        partial(_client_closed, s, client, deal),
    )


def _data_corrected(s: Story, client: str, boss: str) -> Turns:
    phone = f"+49 30 {s.chance.randrange(10_000, 99_999)}"
    s.say(
        s.pick(
            f"Correct the phone number of {s.name} ({client}) to {phone}.",
            f"{s.name}, {client}, can be reached at {phone} now. Please change that.",
        ),
        "modify_client",
        {"client_id": client, "phone": phone},
    )
    yield
    s.say(
        f"Give {client} the e-mail address hello@rheinwerk.example.",
        "modify_client",
        {"client_id": client, "email": "hello@rheinwerk.example"},
        refused="already exists",
    )
    yield
    s.say(
        f"{boss} of {s.name} is Managing Director now.",
        "modify_contact",
        {"contact_id": boss, "title": "Managing Director"},
    )
    yield


def _person_left(s: Story, client: str, boss: str, gone: str) -> Turns:
    s.say(
        f"The contact {gone} has left {s.name}: delete the entry.",
        "delete_contact",
        {"contact_id": gone},
    )
    yield
    third = s.person(3)
    added = s.say(
        f"The successor at {client} is {third['first_name']} {third['last_name']}, {third['email']}.",
        "create_contact",
        {"client_id": client, **third},
    )
    yield
    s.say(
        f"{boss} is not the primary contact any more.",
        "modify_contact",
        {"contact_id": boss, "is_primary": False},
    )
    yield
    s.say(
        "Make the successor the primary contact.",
        "modify_contact",
        {"contact_id": added + "contact_id}}", "is_primary": True},
    )
    yield


def _client_closed(s: Story, client: str, deal: str) -> Turns:
    s.say(
        f"{s.name} has gone out of business. Delete client {client}.",
        "delete_client",
        {"client_id": client},
        refused="cannot be deleted",
    )
    yield
    s.say(f"Delete its opportunity {deal}, then.", "delete_opportunity", {"opportunity_id": deal})
    yield
    s.say(
        f"And set {client} to churned instead.", "modify_client", {"client_id": client, "status": "churned"}
    )
    yield


WORKFLOWS: dict[str, Callable[[Story], Turns]] = {
    function.__name__: function
    for function in (
        client_onboarding,
        deal_pipeline,
        quoting,
        contracting,
        records,
        reporting,
        housekeeping,
    )
}
