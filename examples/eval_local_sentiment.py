"""Do four examples in the prompt help? 64 film reviews, a real model, no key and no network.

The model is SmolLM2-135M, embedded: small enough for one CPU core, and a JSON schema keeps its answers to
the two labels. Run it, then look at the two evaluations side by side:

    pytest examples/eval_local_sentiment.py --experiment sentiment
    evalve show sentiment
"""

from pathlib import Path

import evalve
from evalve.evaluators import exact_match

reviews = Path(__file__).with_name("movie_reviews.jsonl")
model = evalve.model("local")

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


def turns(review, examples=()):
    """The question about a review, after the same question about the examples, with their answers."""
    messages = []
    for text, sentiment in examples:
        messages.append({"role": "user", "content": QUESTION.format(text)})
        messages.append({"role": "assistant", "content": f'{{"sentiment": "{sentiment}"}}'})
    return [*messages, {"role": "user", "content": QUESTION.format(review)}]


async def classified(messages):
    answer = await model.generate(messages, response_schema=LABEL, temperature=0, max_tokens=64)
    return answer.parsed()["sentiment"]


@evalve.foreach("review,sentiment", reviews)
async def eval_zero_shot(review, sentiment):
    return exact_match(await classified(turns(review)), sentiment)


@evalve.foreach("review,sentiment", reviews)
async def eval_four_shot(review, sentiment):
    return exact_match(await classified(turns(review, EXAMPLES)), sentiment)
