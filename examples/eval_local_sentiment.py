"""Do four examples in the prompt help? 64 film reviews, a real model, no key and no network.

The model is SmolLM2-135M, embedded: small enough for one CPU core, and a JSON schema keeps its answers to
the two labels. `SHOTS` says how many examples its prompt has; each number is an experiment:

    SHOTS=0 pytest examples/eval_local_sentiment.py --experiment zero-shot
    SHOTS=4 pytest examples/eval_local_sentiment.py --experiment four-shot
    evalve compare zero-shot four-shot
"""

import os
from pathlib import Path

import evalve
from evalve import Result
from evalve.evaluators import exact_match

SHOTS = int(os.environ.get("SHOTS", "0"))
QUESTION = "Review: {}\nSentiment:"
LABEL = {
    "type": "object",
    "properties": {"sentiment": {"enum": ["positive", "negative"]}},
    "required": ["sentiment"],
}
EXAMPLES = [
    ("A boring film with a silly plot.", "negative"),
    ("I laughed, I cried, and I want to see it again.", "positive"),
    ("A beautiful story, wonderfully told.", "positive"),
    ("The acting is terrible, and so is the script.", "negative"),
]

model = evalve.model("local")


def messages(review):
    """The question about a review, after the same question about the examples, with their answers."""
    turns = []
    for text, sentiment in EXAMPLES[:SHOTS]:
        turns.append({"role": "user", "content": QUESTION.format(text)})
        turns.append({"role": "assistant", "content": f'{{"sentiment": "{sentiment}"}}'})
    return [*turns, {"role": "user", "content": QUESTION.format(review)}]


@evalve.foreach("review,sentiment", Path(__file__).with_name("movie_reviews.jsonl"))
async def eval_local_sentiment(review, sentiment):
    answer = await model.generate(messages(review), response_schema=LABEL, temperature=0, max_tokens=64)
    label = answer.parsed()["sentiment"]
    return Result(exact_match(label, sentiment), prompt=QUESTION.format(review), response=label)
