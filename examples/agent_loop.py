"""An agent that loses its process in the middle of its work, and goes on where it was.

    pip install 'mcp>=2'
    python agent_loop.py --die-after 2    # kill -9 of itself and of its server after the second step
    python agent_loop.py                  # finds what was saved, and does only the rest
"""

import argparse
import asyncio
import os
import subprocess

from mcp import Client, StdioServerParameters

PROJECT, WORKFLOW = "shop", "release"
STEPS = ["read the changes", "write the notes", "run the tests", "build the archive", "announce it"]

# It needs no port and no daemon: each agent starts a server of its own, and all share what is saved. The client
# hands few variables on to it, and not WAYSTONE_DATA_DIR, without which it would look into another directory.
SERVER = StdioServerParameters(command="waystone", args=["mcp"], env={**os.environ, "WAYSTONE_PROJECT": PROJECT})


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    if result.is_error:  # a code, what is wrong and what to do about it: for a model to read, here for you
        raise SystemExit(f"{tool}: {result.structured_content['error']}")
    return result.structured_content


async def unfinished(client):
    """The context of a run that was interrupted, and where it was saved; or a new one."""
    found = await call(client, "workflow_resume", workflowId=WORKFLOW)
    for run in found["sessions"]:
        # What fits best comes first, but a guess may follow, even from another project: a model would ask, we pass.
        if (run["projectId"], run.get("workflowId")) != (PROJECT, WORKFLOW):
            continue
        saved = await call(client, "workflow_checkpoint_load", sessionId=run["sessionId"])
        if len(saved["context"]["results"]) < len(STEPS):
            print(f"going on with {run['sessionId']}: {', '.join(run['why'])}")
            return saved["context"], {"sessionId": run["sessionId"], "expectedCheckpointId": saved["checkpointId"]}
    print("beginning")
    return {"goal": "publish version 1.2", "results": {}}, {}


def work(step):
    """Here an agent would ask its model and run tools."""
    print(f"doing: {step}", flush=True)
    return f"{step}: done by process {os.getpid()}"


def die():
    """What a power cut or the kernel does to both: no one gets to say goodbye."""
    subprocess.run(["pkill", "-KILL", "-P", str(os.getpid())], check=True)
    os.kill(os.getpid(), 9)


async def main(die_after):
    async with Client(SERVER) as client:
        context, place = await unfinished(client)
        for number, step in enumerate(STEPS, 1):
            if step in context["results"]:
                continue
            # What came of a step and that it is done are one save: both are kept, or neither. When this returns
            # they are on disk. A step that is cut off before is done again, so what it does to the outside
            # should bear that. If another agent took up the same run, the save fails instead of mixing both.
            context["results"][step] = work(step)
            saved = await call(client, "workflow_checkpoint_save", context=context, workflowId=WORKFLOW, **place)
            place = {"sessionId": saved["sessionId"], "expectedCheckpointId": saved["checkpointId"]}
            if number == die_after:
                die()
        print(f"all {len(STEPS)} steps are done; waystone checkpoint list {place['sessionId']} shows them")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--die-after", type=int, metavar="STEP")
    asyncio.run(main(arguments.parse_args().die_after))
