"""120 calls under a provider's limits: as fast as they allow, and none refused.

The provider is the simulator, which refuses what comes too fast as a real one does. Start it in one terminal;
in another, export what it tells you, and run this. Unless you say the limit, its answers do.

    evalve simulate --requests-per-minute 600 --depth-s 1 --latency-s 0.3
    EVALVE_LIMITS_ANTHROPIC_RPM=600 pytest examples/eval_paced.py --max-concurrency auto
"""

import evalve

model = evalve.model("anthropic/claude-sonnet-5")


@evalve.foreach("number", range(120))
async def eval_paced(number):
    answer = await model.generate(f"Is {number} even? Answer yes or no.", max_tokens=20)
    return bool(answer.text)  # a simulated answer is neither right nor wrong, only there or not
