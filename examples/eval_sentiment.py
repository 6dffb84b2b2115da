"""Does the model hear whether a customer is happy? Forty reviews, two evaluators, no key needed.

The "model" is a list of rules behind a connection that is slow and now and then drops; it replies with
JSON, as a prompted model would. `SENTIMENT_RULES=v2` gives it a second set of rules, which knows about
negation: run both under two experiments and compare them.
"""

import asyncio
import json
import os

import pytest

from evalve import Result, foreach
from evalve.evaluators import exact_match, valid_json

reviews = [
    ("The battery lasts two days, great phone", "positive"),
    ("Delivery was quick and the fit is perfect", "positive"),
    ("I love the colour", "positive"),
    ("Setup took five minutes, easy", "positive"),
    ("Excellent value for the price", "positive"),
    ("My daughter is happy with it", "positive"),
    ("Works as described, great support too", "positive"),
    ("Comfortable chair, I love working in it", "positive"),
    ("The sound is excellent", "positive"),
    ("Perfect for small kitchens", "positive"),
    ("Not bad at all for a first version", "positive"),
    ("No problem with returns, friendly staff", "positive"),
    ("I have nothing to complain about", "positive"),
    ("Never had a broken part in three years", "positive"),
    ("Easy to clean, easy to store", "positive"),
    ("The screen broke after a week", "negative"),
    ("Terrible smell, I sent it back", "negative"),
    ("Support never answered", "negative"),
    ("It arrived broken", "negative"),
    ("Bad stitching, the seam came off", "negative"),
    ("A waste of money", "negative"),
    ("The app is slow and crashes", "negative"),
    ("Awful instructions, nobody can follow them", "negative"),
    ("I want a refund", "negative"),
    ("Not great, and far too loud", "negative"),
    ("I would not call it easy", "negative"),
    ("Not worth the price", "negative"),
    ("Disappointed: the picture shows another product", "negative"),
    ("The second one failed as well", "negative"),
    ("Great, another charger that does not charge", "negative"),
    ("It is a cable", "neutral"),
    ("The box contains two screws and a manual", "neutral"),
    ("Ordered on Monday, came on Thursday", "neutral"),
    ("Same size as the old model", "neutral"),
    ("I bought it for my office", "neutral"),
    ("The manual is in four languages", "neutral"),
    ("It has three buttons", "neutral"),
    ("My neighbour has the same one", "neutral"),
    ("Some like the old design, some the new one", "neutral"),
    ("Neither good nor bad", "neutral"),
]

GOOD = ("great", "perfect", "love", "easy", "excellent", "happy", "friendly")
BAD = ("broke", "terrible", "never answered", "bad", "waste", "crashes", "awful", "refund", "disappointed")
NEGATIONS = ("not ", "no ", "never had", "nothing to")
OPPOSITE = {"positive": "negative", "negative": "positive", "neutral": "positive"}


class RuleModel:
    """Answers like a model behind an API: after a while, as text, and not always right."""

    def __init__(self, rules: str) -> None:
        self._knows_negation = rules == "v2"
        self._dropped: set[str] = set()

    async def complete(self, prompt: str, text: str) -> str:
        await asyncio.sleep(0.4 + len(text) % 5 / 10)
        if len(prompt) % 23 == 0 and text not in self._dropped:
            self._dropped.add(text)
            raise ConnectionError("the connection was closed by the other side")
        return json.dumps({"label": self._label(text.lower())})

    def _label(self, text: str) -> str:
        good, bad = (any(word in text for word in words) for words in (GOOD, BAD))
        label = "neutral" if good == bad else "positive" if good else "negative"
        if self._knows_negation and any(text.startswith(word) or f" {word}" in text for word in NEGATIONS):
            return OPPOSITE[label]
        return label


@pytest.fixture(scope="session")
def model() -> RuleModel:
    return RuleModel(os.environ.get("SENTIMENT_RULES", "v1"))


@foreach("text,expected", reviews)
async def eval_sentiment(text, expected, model):
    prompt = f'{text}\n\nIs this review positive, negative or neutral? Reply as {{"label": …}}.'
    reply = await model.complete(prompt, text)
    label = json.loads(reply)["label"]
    return Result(valid_json(reply), exact_match(label, expected), prompt=prompt, response=reply)
