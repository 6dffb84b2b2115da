#!/bin/sh
# What `make demo` shows: an evaluation in parallel, interrupted, resumed, shown, and compared with another.
# Everything is written below build/demo.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
demo="$here/../build/demo"
rm -rf "$demo"
mkdir -p "$demo"
cp "$here/eval_sentiment.py" "$here/eval_adaptive.py" "$demo"
cd "$demo"
printf '[pytest]\nasyncio_default_fixture_loop_scope = session\n' > pytest.ini

say() {
    printf '\n\033[1m# %s\033[0m\n' "$1"
}

run() {
    printf '$ %s\n' "$*"
    "$@"
}

say "Forty reviews through a slow model, eight at a time. Ctrl-C comes after two seconds."
printf '$ pytest -q eval_sentiment.py --experiment v1 --max-concurrency 8\n'
python "$here/interrupt.py" 2 pytest -q eval_sentiment.py --experiment v1 --max-concurrency 8 || true

say "What was done is saved:"
run evalve list

say "The same command goes on where it stopped:"
run pytest -q eval_sentiment.py --experiment v1 --max-concurrency 8

say "And once more: nothing is left to run, and the verdict is the same."
run pytest -q eval_sentiment.py --experiment v1 --max-concurrency 8

say "The wrong answers:"
run evalve show v1 --failed --limit 5

say "A second set of rules, as an experiment of its own:"
printf '$ SENTIMENT_RULES=v2 pytest -q eval_sentiment.py --experiment v2 --max-concurrency 20\n'
SENTIMENT_RULES=v2 pytest -q eval_sentiment.py --experiment v2 --max-concurrency 20

say "Is it better? Paired by sample, with an interval and a test:"
run evalve compare v1 v2

say "How many calls at once does a service take? Adaptive finds out:"
run python eval_adaptive.py

say "The records lie in build/demo/.evalve; the evaluations in examples/. Next: README.md."
