"""Async evaluations beside pytest-asyncio and anyio: each runs on the loop that its fixtures live on."""

from __future__ import annotations

import pytest
from project import Project

CLIENT_OF_A_LOOP = """
    import asyncio

    class Client:
        def __init__(self):
            self.loop = asyncio.get_running_loop()
            self.open = True

        async def ask(self, question):
            await asyncio.sleep(0.001)
            assert self.open, "the client is closed"
            assert asyncio.get_running_loop() is self.loop, "another loop"
            return question
"""


@pytest.mark.parametrize("mode", ["strict", "auto"])
@pytest.mark.parametrize("loop_scope", ["function", "session"])
def test_async_fixtures_of_pytest_asyncio_share_their_loop_with_the_samples(
    project: Project, mode: str, loop_scope: str
) -> None:
    project.write(
        "pytest.ini",
        f"""
        [pytest]
        filterwarnings = error
        asyncio_mode = {mode}
        asyncio_default_fixture_loop_scope = {loop_scope}
        """,
    )
    project.write("clients.py", CLIENT_OF_A_LOOP)
    project.write(
        "eval_client.py",
        f"""
        import asyncio
        import {"pytest" if mode == "auto" else "pytest_asyncio as pytest"}
        from clients import Client
        from evalve import foreach

        @pytest.fixture(scope="{loop_scope}")
        async def client():
            client = Client()
            yield client
            client.open = False

        @pytest.fixture
        async def question_mark(client):
            return await client.ask("?")

        @foreach("question", ["a", "b"])
        async def eval_first(question, client, question_mark):
            return await client.ask(question) + question_mark == question + "?"

        @foreach("question", ["a", "b"])
        async def eval_second(question, client):
            return await client.ask(question) == question

        @foreach("question", ["a", "b"])
        def eval_sync(question, question_mark):
            return question_mark == "?"
        """,
    )

    ended = project.pytest("--fail-under", "accuracy=1")

    assert ended.outcomes == {"passed": 3}, ended.out


def test_without_the_ini_setting_a_fixture_lives_on_the_loop_of_its_scope(project: Project) -> None:
    project.write("pytest.ini", "[pytest]\nasyncio_mode = auto\n")
    project.write("clients.py", CLIENT_OF_A_LOOP)
    project.write(
        "eval_client.py",
        """
        import pytest
        from clients import Client
        from evalve import foreach

        @pytest.fixture(scope="module")
        async def client():
            yield Client()

        @foreach("question", ["a"])
        async def eval_client(question, client):
            return await client.ask(question) == question
        """,
    )

    ended = project.pytest()

    assert ended.outcomes == {"passed": 1}, ended.out


def test_a_loop_that_the_person_asks_for_is_the_one_that_is_used(project: Project) -> None:
    project.write("clients.py", CLIENT_OF_A_LOOP)
    project.write(
        "eval_client.py",
        """
        import pytest
        import pytest_asyncio
        from clients import Client
        from evalve import foreach

        pytestmark = pytest.mark.asyncio(loop_scope="module")

        @pytest_asyncio.fixture(scope="module", loop_scope="module")
        async def client():
            yield Client()

        @foreach("question", ["a"])
        async def eval_first(question, client):
            return await client.ask(question) == question

        @foreach("question", ["a"])
        async def eval_second(question, client):
            return await client.ask(question) == question
        """,
    )

    ended = project.pytest()

    assert ended.outcomes == {"passed": 2}, ended.out


def test_fixtures_on_several_loops_are_a_collection_error_that_says_so(project: Project) -> None:
    project.write(
        "eval_loops.py",
        """
        import pytest_asyncio
        from evalve import foreach

        @pytest_asyncio.fixture(loop_scope="session")
        async def one(): return 1

        @pytest_asyncio.fixture(loop_scope="module")
        async def two(): return 2

        @foreach("number", [1])
        async def eval_loops(number, one, two):
            return True
        """,
    )

    ended = project.pytest()

    assert ended.code == 2
    assert (
        "eval_loops.py::eval_loops: its async fixtures live on several event loops (module, session); "
        "give them the same loop_scope" in ended.out
    )


@pytest.mark.parametrize("without", [[], ["-p", "no:asyncio"]])
def test_a_client_made_once_serves_every_evaluation_of_the_process(
    project: Project, without: list[str]
) -> None:
    if without:
        project.write("pytest.ini", "[pytest]\nfilterwarnings = error\n")
    project.write("clients.py", CLIENT_OF_A_LOOP)
    project.write(
        "shared.py",
        """
        from functools import cache
        from clients import Client

        client = cache(Client)
        """,
    )
    for name in ("eval_a.py", "eval_b.py"):
        project.write(
            name,
            """
            import asyncio
            import pytest
            from evalve import foreach
            from shared import client

            class Lazy:
                async def ask(self, question):
                    return await client().ask(question)

            at_module_level = Lazy()
            loops = set()

            @pytest.fixture(scope="session")
            def from_a_fixture():
                return Lazy()

            @foreach("question", ["a", "b"])
            async def eval_one(question, from_a_fixture):
                loops.add(id(asyncio.get_running_loop()))
                return await from_a_fixture.ask(question) == question

            @foreach("question", ["a"])
            def eval_sync_between(question):
                return True

            @foreach("question", ["a", "b"])
            async def eval_two(question):
                loops.add(id(asyncio.get_running_loop()))
                return await at_module_level.ask(question) == question

            def test_one_loop():
                assert len(loops) == 1
            """,
        )

    ended = project.pytest(*without)

    assert ended.outcomes == {"passed": 8}, ended.out


@pytest.mark.parametrize("without", [[], ["-p", "no:asyncio"]])
def test_anyio_marks_and_fixtures_work(project: Project, without: list[str]) -> None:
    scope = "" if without else "asyncio_default_fixture_loop_scope = function\n"
    project.write("pytest.ini", f"[pytest]\nfilterwarnings = error\n{scope}")
    project.write("clients.py", CLIENT_OF_A_LOOP)
    project.write(
        "eval_anyio.py",
        """
        import pytest
        from clients import Client
        from evalve import foreach

        pytestmark = pytest.mark.anyio

        @pytest.fixture(scope="module")
        def anyio_backend():
            return "asyncio"

        @pytest.fixture(scope="module")
        async def client(anyio_backend):
            client = Client()
            yield client
            client.open = False

        @foreach("question", ["a", "b"])
        async def eval_first(question, client):
            return await client.ask(question) == question

        @foreach("question", ["a", "b"])
        async def eval_second(question, client):
            return await client.ask(question) == question

        @foreach("question", ["a", "b"])
        async def eval_without_fixtures(question):
            return True
        """,
    )

    ended = project.pytest("--fail-under", "accuracy=1", *without)

    assert ended.outcomes == {"passed": 3}, ended.out
    assert [one["status"] for one in project.records()] == ["done"] * 6


def test_a_sync_evaluation_may_call_asyncio_run(project: Project) -> None:
    project.write(
        "eval_sync.py",
        """
        import asyncio
        from evalve import foreach

        async def answer(number):
            await asyncio.sleep(0.001)
            return number

        @foreach("number", [1, 2, 3])
        def eval_sync(number):
            return asyncio.run(answer(number))

        @foreach("number", [1, 2])
        async def eval_async_afterwards(number):
            return await answer(number)
        """,
    )

    ended = project.pytest()
    in_threads = project.pytest("--max-concurrency", "3")

    assert ended.outcomes == in_threads.outcomes == {"passed": 2}, ended.out
    assert project.values() == {"eval_sync": [1, 2, 3], "eval_async_afterwards": [1, 2]}


def test_ordinary_async_tests_go_on_working_beside_evaluations(project: Project) -> None:
    project.write("pytest.ini", "[pytest]\nfilterwarnings = error\nasyncio_mode = auto\n")
    project.write(
        "test_mixed.py",
        """
        import asyncio
        from evalve import foreach

        async def test_before():
            await asyncio.sleep(0)

        @foreach("number", [1])
        async def eval_between(number):
            await asyncio.sleep(0)
            return True

        async def test_after():
            await asyncio.sleep(0)
        """,
    )

    ended = project.pytest("-o", "asyncio_default_fixture_loop_scope=function")

    assert ended.outcomes == {"passed": 3}, ended.out
