"""A directory for each sample: a stand-in for a coding agent repairs a program, and its tests judge.

    pytest examples/eval_workspace.py --experiment repair

Two of three programs are repaired. To look at what an agent left behind, pass keep="always".
"""

import asyncio
import sys

import evalve

CHECK = "from program import double\n\nassert double(5) == 10\n"
WORKSPACE = evalve.Workspace(files={"check.py": CHECK})
BROKEN = [
    ("plus", "def double(n):\n    return n + 4\n"),
    ("minus", "def double(n):\n    return n - n\n"),
    ("wrong name", "def twice(n):\n    return 2 * n\n"),
]
REPAIRS = {"n - n": "2 * n", "def twice": "def double"}


async def agent(folder):
    """Works in the directory that it is given, as a real one would, and knows of no other."""
    program = folder / "program.py"
    text = program.read_text()
    for wrong, right in REPAIRS.items():
        text = text.replace(wrong, right)
    program.write_text(text)


@evalve.foreach("id,text", BROKEN)
async def eval_repair(id, text, workspace=WORKSPACE):
    (workspace / "program.py").write_text(text)
    await agent(workspace.path)
    checking = await asyncio.create_subprocess_exec(
        sys.executable, "check.py", cwd=workspace, stderr=asyncio.subprocess.DEVNULL
    )
    return evalve.Result(await checking.wait() == 0, response=(workspace / "program.py").read_text())
