"""Conversations about deals, quotes and contracts."""

from __future__ import annotations

from functools import partial

from making.story import Story, Turns, in_any_order
from making.world import OWNERS

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
