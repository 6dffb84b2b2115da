#!/bin/sh
# What `make demo` shows: a real model on this machine, evaluated, interrupted, resumed, compared and cached;
# then a provider's limits, kept; then four agents and a CRM. Everything is written below build/demo; no key and no
# network are used.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
demo="$here/../build/demo"
rm -rf "$demo"
mkdir -p "$demo"
cp "$here/eval_local_sentiment.py" "$here/movie_reviews.jsonl" "$here/eval_paced.py" "$demo"
cd "$demo"
printf '[pytest]\nasyncio_default_fixture_loop_scope = session\n' > pytest.ini
for name in $(env | sed -n 's/^\(EVAL_[A-Z0-9_]*\|EVALVE_[A-Z0-9_]*\|ANTHROPIC_[A-Z0-9_]*\|OPENAI_[A-Z0-9_]*\)=.*/\1/p'); do
    unset "$name"   # the person's own settings are for their own runs
done
export EVALVE_STATE_DIR="$PWD/state" EVALVE_CACHE_DIR="$PWD/cache"

simulator=
stop_simulator() {
    if [ -n "$simulator" ]; then
        kill -INT "$simulator" 2> /dev/null || true
        wait "$simulator" 2> /dev/null || true
        simulator=
    fi
}
trap stop_simulator EXIT
trap 'exit 130' INT TERM

say() {
    printf '\n\033[1m# %s\033[0m\n' "$1"
}

run() {
    printf '$ %s\n' "$*"
    env "$@"
}

say "A real language model, SmolLM2-135M, on this machine: is a film review positive or negative?"
say "64 reviews without examples in the prompt; Ctrl-C comes after eight seconds."
printf '$ pytest -q eval_local_sentiment.py --experiment zero-shot\n'
SHOTS=0 python "$here/interrupt.py" 8 pytest -q eval_local_sentiment.py --experiment zero-shot || true

say "What was answered is saved:"
run evalve list

say "The same command goes on where it stopped (about twenty seconds on one core):"
run SHOTS=0 pytest -q eval_local_sentiment.py --experiment zero-shot

say "Now with four examples in the prompt, as an experiment of its own:"
run SHOTS=4 pytest -q eval_local_sentiment.py --experiment four-shot

say "Did they help? Paired by review, with an interval and a test:"
run evalve compare zero-shot four-shot
say "That is about this model and this wording; another may do without examples, or be misled by them."

say "Once more from the start. Every answer is kept, so nothing is asked and nothing is paid:"
run SHOTS=0 pytest -q eval_local_sentiment.py --experiment zero-shot --fresh

say "Reviews that it got wrong:"
run evalve show zero-shot --failed --limit 5

say "Next, limits. A simulated provider takes 600 requests a minute and refuses what comes faster."
printf '$ evalve simulate --requests-per-minute 600 --depth-s 1 --latency-s 0.3 &\n'
evalve simulate --requests-per-minute 600 --depth-s 1 --latency-s 0.3 > simulator.jsonl 2> simulator.err &
simulator=$!
until [ -s simulator.jsonl ]; do
    kill -0 "$simulator" || { cat simulator.err; exit 1; }
    sleep 0.1
done
ANTHROPIC_BASE_URL=$(sed -n 's/.*"url": "\([^"]*\)".*/\1/p' simulator.jsonl)
export ANTHROPIC_BASE_URL ANTHROPIC_API_KEY=any EVALVE_LIMITS_ANTHROPIC_RPM=600

kill -0 "$simulator"
say "120 calls, one after another, would take 36 seconds; the limit allows them in about 11."
run pytest -q eval_paced.py --experiment paced --max-concurrency auto

say "The budget that all processes on this machine share:"
run evalve limits

stop_simulator
say "And what the provider saw:"
python - <<'PY'
import json
from pathlib import Path

saw = json.loads(Path("simulator.jsonl").read_text().splitlines()[-1])
print(f"{saw['requests']} requests in {saw['elapsed_s']:.1f} s, {saw['refused']} refused,")
print(f"at most {saw['peak_concurrency']} at once, every second: {list(saw['admitted_by_second'].values())}")
PY

unset EVALVE_LIMITS_ANTHROPIC_RPM ANTHROPIC_BASE_URL ANTHROPIC_API_KEY
cp -r "$here/crm" crm
cd crm
rm -rf .evalve
say "Last, agents with a state: conversations with a CRM in PostgreSQL, each in a database of its own."
say "Three models, and a pair of teacher and student, all at once. They are simulated, and err as they are told:"
run python truth.py --samples 12
run python provider.py evalve run crm --samples 12
printf '$ evalve show crm | head -20\n'
evalve show crm | head -20

say "The records lie in build/demo/.evalve; the evaluations in examples/. Next: README.md."
