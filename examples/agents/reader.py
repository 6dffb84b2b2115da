"""A small agent: it looks things up in context.md with two tools, until the model answers.

It speaks OpenAI's Chat Completions, at the address and with the key that the environment has: under evalve,
those of the gateway. It needs nothing but Python. `python reader.py QUESTION` prints the answer as its last
line, and leaves it in answer.txt.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

MOST_TURNS = 8
SHOWN_LINES = 5
TASK = (
    "You answer questions about a long document, context.md. Look it up with the tools; when you know the "
    "answer, say the figure alone."
)


def tool(name: str, description: str, **parameters: str) -> dict[str, object]:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


TOOLS = [
    tool("search", "Find the lines that have all of these words.", words="separated by spaces"),
    tool("read_line", "Read one line with what is around it.", number="of the line, from 1"),
]


def search(lines: list[str], words: str) -> str:
    wanted = set(words.lower().split())
    found = [
        f"line {number}: {line[:40]}…"
        for number, line in enumerate(lines, 1)
        if wanted <= set(re.findall(r"\w+", line.lower()))
    ]
    return "\n".join(found[:SHOWN_LINES]) or "nothing was found"


def read_line(lines: list[str], number: str) -> str:
    place = int(number) if number.isdecimal() else 0
    return "\n".join(lines[max(0, place - 1) : place + 1]) or "there is no such line"


def ask(messages: list[dict[str, object]]) -> dict[str, object]:
    """One call; the gateway waits for limits and tries again, so that nothing of it is here."""
    body = {"model": os.environ.get("READER_MODEL", "reader"), "messages": messages, "tools": TOOLS}
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL'].rstrip('/')}/chat/completions",
        data=json.dumps(body).encode(),
        headers={
            "authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}",
            "content-type": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        sys.exit(f"the model answers {error.code}: {error.read().decode()}")


def main() -> None:
    lines = Path("context.md").read_text(encoding="utf-8").splitlines()
    messages: list[dict[str, object]] = [
        {"role": "system", "content": TASK},
        {"role": "user", "content": sys.argv[1]},
    ]
    for turn in range(1, MOST_TURNS + 1):
        message = ask(messages)
        messages.append(message)
        if not message.get("tool_calls"):
            answer = str(message.get("content") or "").strip()
            Path("answer.txt").write_text(answer)
            print(answer)
            return
        for call in message["tool_calls"]:
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            result = {"search": search, "read_line": read_line}[name](lines, **arguments)
            print(f"turn {turn}: {name} {arguments}: {result.splitlines()[0]}", flush=True)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    sys.exit(f"no answer after {MOST_TURNS} turns")


if __name__ == "__main__":
    main()
