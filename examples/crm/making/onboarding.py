"""Conversations about new clients, and about clients whose data change."""

from __future__ import annotations

from functools import partial

from making.story import Story, Turns, in_any_order
from making.world import COUNTRIES, DEALS, INDUSTRIES, OWNERS, TITLES

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
