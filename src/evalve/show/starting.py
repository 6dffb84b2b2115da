"""`evalve init`: a first evaluation that needs no key, and what to type next."""

from __future__ import annotations

from pathlib import Path

from evalve.errors import StorageError
from evalve.show import agent_project

FIRST_FILE = "eval_first.py"
DATA_DIRECTORY = ".evalve/"

FIRST_EVALUATION = '''"""A first evaluation: does the router send a support ticket to the right team?

The "model" is a list of rules with a delay, so it needs no key. It is wrong once: find out where.
"""

import asyncio

from evalve import Result, foreach
from evalve.evaluators import exact_match

tickets = [
    ("I was charged twice this month", "billing"),
    ("Please send me the invoice for March", "billing"),
    ("How do I get a refund?", "billing"),
    ("My card payment was declined", "billing"),
    ("The app crashes when I log in", "technical"),
    ("I get error 500 on every page", "technical"),
    ("The export button does nothing, is it a bug?", "technical"),
    ("I cannot reset my password", "technical"),
    ("Where is my parcel?", "shipping"),
    ("The delivery came to the wrong address", "shipping"),
    ("Can you track my order?", "shipping"),
    ("I was charged for a delivery that never came", "shipping"),
]

RULES = {
    "billing": ("charged", "invoice", "refund", "payment"),
    "technical": ("crash", "error", "bug", "password"),
    "shipping": ("parcel", "delivery", "order"),
}


async def ask_model(prompt: str) -> str:
    """Replace this with a call to your model."""
    await asyncio.sleep(0.2)
    for team, words in RULES.items():
        if any(word in prompt for word in words):
            return team
    return "unknown"


@foreach("ticket,team", tickets)
async def eval_routing(ticket, team):
    prompt = f"{ticket}\\nWhich team handles this ticket: billing, technical or shipping?"
    answer = await ask_model(prompt)
    return Result(exact_match(answer, team), prompt=prompt, response=answer)
'''

NEXT_STEPS = f"""
Type next:
  pytest {FIRST_FILE} --experiment first   run it: ten samples at a time
  evalve show first                         the result, with its interval
  evalve show first --failed                the wrong answer
  pytest {FIRST_FILE} --experiment first   again: nothing is left to do
"""


def start(directory: Path, *, agents: bool = False) -> list[str]:
    """Writes what is missing, never over anything; returns what to tell the person."""
    files = {FIRST_FILE: FIRST_EVALUATION}
    if agents:
        files = {
            "evalve.yaml": agent_project.CONFIGURATION,
            "agent.py": agent_project.AGENT,
            "documents.jsonl": agent_project.documents(),
        }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        said = [_write(directory / name, text) for name, text in files.items()]
        said.append(_ignore_data(directory / ".gitignore"))
    except OSError as error:
        raise StorageError(f"cannot write to {directory}: {error.strerror or error}") from error
    if directory.resolve() != Path.cwd():
        said.append(f"\nGo there first:\n  cd {directory}")
    steps = agent_project.NEXT_STEPS if agents else NEXT_STEPS
    return [*said, *steps.rstrip().split("\n")]


def _write(path: Path, text: str) -> str:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return f"kept   {path} (it exists already; nothing in it was changed)"
    return f"wrote  {path}"


def _ignore_data(path: Path) -> str:
    """Adds the data directory to `.gitignore` unless a line already covers it."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if any(line.strip().strip("/") == DATA_DIRECTORY.strip("/") for line in text.splitlines()):
        return f"kept   {path} ({DATA_DIRECTORY} is in it already)"
    separator = "" if not text or text.endswith("\n") else "\n"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{separator}{DATA_DIRECTORY}\n")
    return f"added  {DATA_DIRECTORY} to {path}"
