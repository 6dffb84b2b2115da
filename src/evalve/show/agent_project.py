"""What `evalve init --agents` writes: an experiment in YAML, its documents, and a small agent."""

from __future__ import annotations

import json

CONFIGURATION = """\
# `evalve run documents` asks the agent about every document, five at a time, each in a workspace of its own.
models:
  reader:
    agent: command
    command: [python3, "{project}/agent.py", "{prompt}"]
    answer: last_line
  # claude-code-sonnet: {agent: claude-code, model: anthropic/claude-sonnet-5}

datasets:
  documents: {path: documents.jsonl}       # rows with id, question, context, answer

experiments:
  documents:
    datasets: [documents]
    models: [reader]
    evaluation_mode: agent
    concurrency: 5
    prompt: "{question}"
    files: {context.md: "{context}"}
    expected: answer
    evaluators: [exact_match]
  debug: {extends: documents, concurrency: 1, limit: 3}
"""

AGENT = '''"""A small agent: it reads context.md and prints a number of the line nearest to the question.

Replace it with any program. It starts in its own workspace; what it prints last is its answer.
"""

import re
import sys
from pathlib import Path

question = sys.argv[1]
words = set(re.findall(r"\\w+", question.lower()))
lines = Path("context.md").read_text(encoding="utf-8").splitlines()
best = max(lines, key=lambda line: len(words & set(re.findall(r"\\w+", line.lower()))))
print("the line is:", best)
numbers = re.findall(r"\\d+\\.\\d+", best)
print(numbers[0] if numbers else "unknown")
'''

_COMPANIES = (
    "Alder",
    "Birch",
    "Cedar",
    "Elm",
    "Fir",
    "Hazel",
    "Larch",
    "Maple",
    "Oak",
    "Pine",
    "Rowan",
    "Yew",
)
_WRONG = 7
"""Whose document has an answer that the agent does not find: there is something to look at."""


def documents() -> str:
    """Twelve short reports, by line of JSON."""
    return "".join(json.dumps(_document(number, name)) + "\n" for number, name in enumerate(_COMPANIES))


def _document(number: int, name: str) -> dict[str, str]:
    revenue, profit = 20 + 7.25 * number, 2 + 1.75 * number
    what = "turnover" if number == _WRONG else "revenue"
    context = (
        f"# Annual report of {name}\n\nThe {what} was {revenue:.2f} million in 2025.\n"
        f"The profit was {profit:.2f} million in 2025.\n"
        f"The revenue per share of {name} was {revenue / 10:.2f} in 2024.\n"
    )
    question = f"What was the revenue of {name} in 2025, in million?"
    return {"id": name.lower(), "question": question, "context": context, "answer": f"{revenue:.2f}"}


NEXT_STEPS = """
Type next:
  evalve validate                           what is in evalve.yaml, checked
  evalve plan documents                     what it will take
  evalve run documents                      run it: five agents at a time
  evalve show documents                     the result, with its interval
  evalve show documents --failed            the wrong answer
  evalve run documents                      again: nothing is left to do
"""
