"""Fixtures and variants of evaluations: alive while samples run, each variant with its own values."""

from __future__ import annotations

from project import Project


def test_yield_fixtures_of_every_scope_are_open_while_samples_run_and_closed_afterwards(
    project: Project,
) -> None:
    project.write(
        "eval_scopes.py",
        """
        import asyncio
        import pytest
        from evalve import foreach

        events = []

        def lender(scope):
            @pytest.fixture(scope=scope)
            def lend():
                events.append(f"{scope} opened")
                yield scope
                events.append(f"{scope} closed")
            return lend

        a_function = lender("function")
        a_class = lender("class")
        a_module = lender("module")
        a_package = lender("package")
        a_session = lender("session")

        @pytest.fixture(autouse=True, scope="session")
        def diary():
            yield
            with open("events.txt", "w") as file:
                file.write("\\n".join(events))

        class TestScopes:
            @foreach("number", [1, 2])
            async def eval_async(self, number, a_session, a_package, a_module, a_class, a_function):
                await asyncio.sleep(0.01)
                events.append(f"async sample {number}")
                return all("closed" not in event for event in events)

            @foreach("number", [1])
            def eval_sync(self, number, a_session, a_package, a_module, a_class, a_function):
                events.append(f"sync sample {number}")
                return events.count("function opened") == 2 and events.count("session opened") == 1
        """,
    )

    ended = project.pytest("--fail-under", "accuracy=1")

    assert ended.outcomes == {"passed": 2}
    events = project.read("events.txt").splitlines()
    assert sorted(events[5:7]) == ["async sample 1", "async sample 2"]
    assert events[:5] + events[7:] == [
        "session opened",
        "package opened",
        "module opened",
        "class opened",
        "function opened",
        "function closed",
        "function opened",
        "sync sample 1",
        "function closed",
        "class closed",
        "module closed",
        "package closed",
        "session closed",
    ]


def test_fixtures_may_use_request_and_other_fixtures(project: Project) -> None:
    project.write(
        "conftest.py",
        """
        import pytest

        @pytest.fixture(scope="session")
        def settings():
            return {"model": "small"}

        @pytest.fixture
        def model(settings, request, tmp_path):
            return f"{settings['model']} for {request.node.name} in {tmp_path.is_dir()}"

        @pytest.fixture(autouse=True)
        def key(monkeypatch):
            monkeypatch.setenv("THE_KEY", "secret")
        """,
    )
    project.write(
        "eval_model.py",
        """
        import os
        import pytest
        from evalve import Result, foreach

        @foreach("question", ["a"])
        @pytest.mark.usefixtures("settings")
        async def eval_model(question, model, temperature=0.5):
            return Result(True, response=[question, model, temperature, os.environ["THE_KEY"]])
        """,
    )

    ended = project.pytest()

    assert ended.outcomes == {"passed": 1}
    assert [one["response"] for one in project.records()] == [
        ["a", "small for eval_model in True", 0.5, "secret"]
    ]


def test_each_variant_has_its_own_values_and_records(project: Project) -> None:
    project.write(
        "eval_variants.py",
        """
        import pytest
        from evalve import Result, foreach

        @pytest.fixture(params=["low", "high"])
        def effort(request):
            return request.param

        @pytest.fixture
        def client(request):
            return f"client of {request.param}"

        @pytest.mark.parametrize("model", ["openai/gpt-4o", "a[b]c"])
        @foreach("question", ["a", "b"])
        async def eval_above(question, model, effort):
            return Result(True, response=f"{model} {effort} {question}")

        @foreach("question", ["a"])
        @pytest.mark.parametrize("model", ["x/y", "z"], ids=["first/one", "second"])
        @pytest.mark.parametrize("client", ["c"], indirect=True)
        def eval_below(question, model, client):
            return Result(True, response=f"{model} {client} {question}")
        """,
    )

    ended = project.pytest("--experiment", "x")
    resumed = project.pytest("--experiment", "x")

    assert ended.outcomes == resumed.outcomes == {"passed": 6}
    responses: dict[str, list[str]] = {}
    for record in project.records("x"):
        responses.setdefault(record["evaluation"], []).append(record["response"])
    assert responses == {
        "eval_above[low-openai/gpt-4o]": ["openai/gpt-4o low a", "openai/gpt-4o low b"],
        "eval_above[low-a[b]c]": ["a[b]c low a", "a[b]c low b"],
        "eval_above[high-openai/gpt-4o]": ["openai/gpt-4o high a", "openai/gpt-4o high b"],
        "eval_above[high-a[b]c]": ["a[b]c high a", "a[b]c high b"],
        "eval_below[c-first/one]": ["x/y client of c a"],
        "eval_below[c-second]": ["z client of c a"],
    }
    assert "is complete: nothing was left to run" in resumed.out
    shown = project.evalve("show", "x").out
    assert "eval_above[low-openai/gpt-4o]" in shown
    assert "eval_above[high-a[b]c]" in shown


def test_variants_are_selected_by_their_node_ids(project: Project) -> None:
    project.write(
        "eval_variants.py",
        """
        import pytest
        from evalve import foreach

        @pytest.mark.parametrize("model", ["openai/gpt-4o", "other"])
        @foreach("question", ["a"])
        async def eval_model(question, model):
            return model == "openai/gpt-4o"
        """,
    )

    ended = project.pytest("eval_variants.py::eval_model[openai/gpt-4o]", "--fail-under", "accuracy=1")

    assert ended.outcomes == {"passed": 1}
    assert project.values() == {"eval_model[openai/gpt-4o]": [True]}


def test_a_generator_serves_two_variants(project: Project) -> None:
    project.write(
        "eval_generator.py",
        """
        import pytest
        from evalve import foreach

        rows = ((number, 2 * number) for number in range(3))

        @pytest.mark.parametrize("factor", [1, 2])
        @foreach("number,double", rows)
        async def eval_factor(number, double, factor):
            return number * factor == double
        """,
    )

    ended = project.pytest()

    assert ended.outcomes == {"passed": 2}
    assert project.values() == {"eval_factor[1]": [True, False, False], "eval_factor[2]": [True, True, True]}


def test_a_sync_evaluation_uses_a_connection_that_belongs_to_its_thread(project: Project) -> None:
    project.write(
        "eval_sqlite.py",
        """
        import sqlite3
        import pytest
        from evalve import foreach

        @pytest.fixture
        def database():
            connection = sqlite3.connect(":memory:")
            connection.execute("CREATE TABLE answer (value)")
            yield connection
            connection.close()

        @foreach("number", [1, 2, 3])
        def eval_rows(number, database):
            database.execute("INSERT INTO answer VALUES (?)", [number])
            return database.execute("SELECT count(*) FROM answer").fetchone()[0]
        """,
    )

    ended = project.pytest()

    assert ended.outcomes == {"passed": 1}
    assert project.values() == {"eval_rows": [1, 2, 3]}


def test_a_fixture_that_breaks_is_an_error_of_the_item_and_records_nothing(project: Project) -> None:
    project.write(
        "eval_broken.py",
        """
        import pytest
        from evalve import foreach

        @pytest.fixture
        def client():
            raise ConnectionError("no network")

        @foreach("number", [1])
        async def eval_client(number, client):
            return True

        @foreach("number", [1])
        async def eval_unknown(number, no_such_fixture):
            return True
        """,
    )

    ended = project.pytest("--experiment", "x")

    assert ended.code == 1
    assert ended.outcomes == {"errors": 2}
    assert "ConnectionError: no network" in ended.out
    assert "fixture 'no_such_fixture' not found" in ended.out


def test_capture_fixtures_work_inside_samples(project: Project) -> None:
    project.write(
        "eval_capture.py",
        """
        import logging
        from evalve import foreach

        @foreach("number", [1])
        def eval_prints(number, capsys, caplog):
            print("said")
            logging.getLogger("mine").warning("logged")
            return capsys.readouterr().out == "said\\n" and "logged" in caplog.text
        """,
    )

    ended = project.pytest("--fail-under", "accuracy=1")

    assert ended.outcomes == {"passed": 1}


def test_a_fixture_that_does_not_exist_is_reported_at_the_evaluation(project: Project) -> None:
    project.write(
        "eval_typo.py",
        """
        from evalve import foreach

        @foreach("number", [1])
        def eval_typo(number, modle):
            return True
        """,
    )

    ended = project.pytest("-q")

    assert "fixture 'modle' not found" in ended.out
    assert "eval_typo.py:4" in ended.out
    assert "foreach.py" not in ended.out
