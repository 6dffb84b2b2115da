"""What conversations are about: names and figures, and the rows with which every one of them begins."""

from __future__ import annotations

from making.model import Crm

CLIENT_NAMES = [
    f"{first} {second}"
    for second in ("Analytics", "Foods", "Logistics", "Robotics", "Textiles", "Pharma")
    for first in (
        *("Amber", "Birch", "Cobalt", "Delta", "Ember", "Fjord", "Granite", "Harbor", "Indigo", "Juniper"),
        *("Kestrel", "Lumen", "Meridian", "Nimbus", "Orchid", "Pioneer", "Quartz", "Ridge", "Sable"),
        *("Tundra", "Umbra"),
    )
]
OWNERS = ("dana", "ines", "lee", "omar")
FIRST_NAMES = ("Ada", "Bruno", "Clara", "Dev", "Elif", "Farid", "Greta", "Hugo", "Iris", "Jun")
LAST_NAMES = ("Abbott", "Becker", "Costa", "Dietz", "Evans", "Fontaine", "Gupta", "Hansen", "Ito", "Jensen")
TITLES = ("Head of Purchasing", "Chief Technology Officer", "Operations Manager", "Finance Director")
DEALS = ("Annual licence", "Support renewal", "Data migration", "Pilot project", "Fleet upgrade", "Training")
INDUSTRIES = ("logistics", "healthcare", "retail", "energy")
COUNTRIES = ("DE", "FR", "JP", "US")
REMARKS = (
    "Asked for a discount on a longer term.",
    "Wants a demonstration before the board meets.",
    "Prefers calls in the morning.",
    "Procurement needs two signatures.",
    "The budget is approved for the next quarter.",
)


def base() -> Crm:
    """What seed.sql has: a few rows that no conversation is about, and that no call may touch by mistake."""
    crm = Crm()
    crm.put("companies", "CO-1", name="Northwind Holding", industry="retail", country="US", employees=5200)
    crm.put(
        "companies", "CO-2", name="Rheinwerk", kind="partner", industry="energy", country="DE", employees=840
    )
    crm.put("companies", "CO-3", name="Papeterie Lune", kind="vendor", industry="retail", country="FR")
    crm.put("clients", "CL-1", company_id="CO-1", name="Northwind Stores", status="active", owner="dana")
    crm.put(
        "clients",
        "CL-2",
        company_id="CO-2",
        name="Rheinwerk Netz",
        email="hello@rheinwerk.example",
        owner="lee",
    )
    crm.put("contacts", "CT-1", client_id="CL-1", first_name="Nora", last_name="West", is_primary=True)
    crm.put("contacts", "CT-2", client_id="CL-2", first_name="Karl", last_name="Brandt", title="Buyer")
    deal = {"client_id": "CL-1", "name": "Till replacement", "owner": "dana"}
    crm.put("opportunities", "OP-1", **deal, stage="closed_won", amount=64000, probability=100)
    crm.put(
        "opportunities",
        "OP-2",
        client_id="CL-2",
        name="Metering",
        stage="proposal",
        amount=91500,
        probability=40,
    )
    crm.put("quotes", "QU-1", opportunity_id="OP-1", title="Tills, 40 shops", amount=64000, status="approved")
    term = {"start_date": "2026-01-01", "end_date": "2027-12-31"}
    crm.put("contracts", "CN-1", client_id="CL-1", quote_id="QU-1", value=64000, status="active", **term)
    crm.put("documents", "DO-1", client_id="CL-1", contract_id="CN-1", name="tills.pdf", kind="agreement")
    crm.put("notes", "NO-1", client_id="CL-2", opportunity_id="OP-2", body="Waiting for the grid permit.")
    return crm


def as_sql(crm: Crm) -> str:
    """The rows as INSERT statements, parents first."""
    lines = ["-- Written by make_conversations.py: what every conversation begins with."]
    for table, rows in crm.tables.items():
        for which, row in rows.items():
            given = {"id": which, **{column: value for column, value in row.items() if value is not None}}
            values = ", ".join(_literal(value) for value in given.values())
            lines.append(f"INSERT INTO {table} ({', '.join(given)}) VALUES ({values});")
    return "\n".join(lines) + "\n"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
