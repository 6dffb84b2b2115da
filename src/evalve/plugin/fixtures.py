"""The fixtures that evaluations and tests may ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalve.errors import EvalveError
from evalve.plugin.stash import models_chosen, session_of


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Any:
    """The model that `--model` names, ready to be asked; with several, one variant for each."""
    from evalve.gating import model as open_model

    chosen = models_chosen(request.config)
    name = getattr(request, "param", None)
    if name is None and len(chosen) == 1:
        name = chosen[0]  # asked for by a test that reads an evaluation
    if name is None and chosen:
        pytest.fail(
            f"{request.node.nodeid} reads an evaluation that asks for a model, and {len(chosen)} were chosen:"
            " let the test ask for `model` too, so that there is one for each",
            pytrace=False,
        )
    if name is None:
        pytest.fail(
            f"{request.node.nodeid} asks for a model, and none was chosen: "
            "pass --model, as in --model anthropic/claude-sonnet-5 or --model local",
            pytrace=False,
        )
    try:
        return open_model(name)
    except EvalveError as error:
        pytest.fail(f"{request.node.nodeid}: {error}", pytrace=False)


@pytest.fixture(scope="session")
def rate_limiter(request: pytest.FixtureRequest) -> Any:
    """The shared limits of the model that `--model` names: `await rate_limiter.acquire()`."""
    from evalve.gating import limiter

    chosen = models_chosen(request.config)
    try:
        return limiter(chosen[0] if chosen else "anthropic/claude-sonnet-5")
    except EvalveError as error:
        pytest.fail(f"rate_limiter: {error}", pytrace=False)


@pytest.fixture
def workspace() -> Any:
    """A directory of its own for each sample of an evaluation: `workspace.path`."""
    from evalve.sandboxes.workspace import Workspace

    return Workspace()


@pytest.fixture
def gateway() -> Any:
    """For programs that a sample starts: `gateway.environment()` leads their calls through evalve."""
    from evalve.gateways import gateway as lender

    return lender()


@pytest.fixture(scope="session")
def postgres_sandbox(request: pytest.FixtureRequest) -> Any:
    """A PostgreSQL database of its own for each sample, as `sandboxes:` in evalve.yaml says."""
    from evalve.experiments.parts.sandboxes import postgres_of_project

    try:
        return postgres_of_project(Path(request.config.invocation_params.dir))
    except (EvalveError, ImportError) as error:
        pytest.fail(f"postgres_sandbox: {error}", pytrace=False)


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Any:
    """The record of the sample that the test reads, as `evalve.reads` says; the evaluation has run then."""
    return _readings(request).record(request)


@pytest.fixture
def records(request: pytest.FixtureRequest) -> Any:
    """The records of all samples of the evaluation that the test reads."""
    return _readings(request).records(request)


def _readings(request: pytest.FixtureRequest) -> Any:
    found = session_of(request.config).readings
    if found is None:
        pytest.fail(
            f"{request.node.nodeid} asks for records: say of which evaluation, with"
            " @evalve.reads(eval_x, SAMPLE_ID)",
            pytrace=False,
        )
    return found
