"""Drives `waystone mcp` and `waystone serve` with the official Python client, under every protocol: save, load, list, every error.

Usage: mcp_client.py BINARY
"""

import asyncio
import contextlib
import json
import sys
import tempfile

from mcp import Client, MCPError, StdioServerParameters

from served import served

PROTOCOLS = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28", "auto": "2026-07-28"}
SAVE, LOAD, LIST = "workflow_checkpoint_save", "workflow_checkpoint_load", "workflow_checkpoint_list"
COMPRESS, PRIORITIZE = "workflow_context_compress", "workflow_context_prioritize"
MARK, EXPAND, RESUME = "workflow_mark_critical", "context_expand", "workflow_resume"
PUT, STASH, SEARCH, RETRIEVE = "context_put", "context_stash", "context_search_stashed", "context_retrieve_stashed"
WORKING, OF_TASK, PROJECTS, USAGE = "context_get_working_set", "context_get_task_context", "context_list_projects", "context_analyze_usage"
GC, PRUNE, PIN, UNPIN = "context_gc_analyze", "context_gc_prune", "context_gc_pin", "context_gc_unpin"
TASK, SNAPSHOT, RESTORE, UNDO = "context_set_current_task", "context_create_task_snapshot", "context_restore_task_snapshot", "context_undo"
READING = [LOAD, LIST, RESUME, COMPRESS, PRIORITIZE, EXPAND, WORKING, OF_TASK, PROJECTS, SEARCH]
REMOVING = [PRUNE, UNDO]
CHANGING = [SAVE, MARK, PUT, STASH, RETRIEVE, USAGE, GC, PRUNE, PIN, UNPIN, TASK, SNAPSHOT, RESTORE, UNDO]


async def tools_have_schemas_and_annotations(client):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert sorted(tools) == sorted(READING + CHANGING), sorted(tools)
    for name, tool in tools.items():
        assert tool.input_schema["type"] == "object" and tool.input_schema["additionalProperties"] is False
        assert tool.output_schema["type"] == "object" and tool.description and tool.title
        assert bool(tool.annotations.read_only_hint) is (name in READING)
        assert name in READING or tool.annotations.destructive_hint is (name in REMOVING)


async def call(client, tool, **arguments):
    """The client itself checks structured content against the tool's output schema."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def fails(client, code, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    error = result.structured_content["error"]
    assert error["code"] == code, error
    assert error["message"] and error["hint"] and "details" in error
    assert json.loads(result.content[0].text) == result.structured_content
    return error


async def what_is_saved_is_loaded(client):
    context = {
        "goal": "först\nsecond", "numbers": [1.0, -0.0, 0.1, 2**53 + 1, 2**60, 2**60 + 1, 2**64 - 1, -(2**63)],
        "ключ": {"a": [None, True, {}], "b": "\u0000\u001b\U0001f600"}, "deep": None,
    }
    for _ in range(120):
        context["deep"] = {"d": context["deep"]}
    saved = await call(client, SAVE, context=context, metadata={"name": "first", "tags": ["a"], "n": 1})
    assert saved["status"] == "SAVED" and saved["sizeBytes"] > 0
    by_id = await call(client, LOAD, checkpointId=saved["checkpointId"])
    latest = await call(client, LOAD, sessionId=saved["sessionId"])
    assert json.dumps(by_id["context"]) == json.dumps(context) and by_id == latest
    assert by_id["metadata"] == {"name": "first", "tags": ["a"], "n": 1}
    assert saved["next"] == {"tool": LOAD, "arguments": {"sessionId": saved["sessionId"]}}


async def a_view_fits_and_its_handles_lead_back(client):
    lines = "\n".join(f"step {n} reads file_{n}.py" for n in range(200))
    saved = await call(client, SAVE, sessionId="views", context={"userGoal": "go on", "notes": lines})
    assert (await call(client, MARK, contextKey="userGoal", sessionId="views"))["status"] == "SUCCESS"
    view = await call(client, COMPRESS, sessionId="views", targetTokens=200)
    assert view["tokensAfter"] <= 200 < view["tokensBefore"] and view["context"]["userGoal"] == "go on", view
    handle = view["survival"]["shortened"][0]["handle"]
    assert handle == f"ws:checkpoint:{saved['checkpointId']}#/notes", handle
    assert (await call(client, EXPAND, handle=handle))["content"] == lines
    ranked = await call(client, PRIORITIZE, context={"debugLog": lines, "userGoal": "go on"}, tokenBudget=100)
    assert ranked["context"] == {"userGoal": "go on"}, ranked
    await fails(client, "INVALID_PARAMETER", EXPAND, handle="x")
    await fails(client, "HANDLE_NOT_FOUND", EXPAND, handle=handle + "/none")


async def unchanged_is_skipped_and_force_saves(client):
    first = await call(client, SAVE, sessionId="unchanged", context={"a": 2**60, "b": 1})
    again = await call(client, SAVE, sessionId="unchanged", context={"b": 1, "a": 2**60})
    assert again["status"] == "SKIPPED_UNCHANGED" and again["checkpointId"] == first["checkpointId"]
    changed = await call(client, SAVE, sessionId="unchanged", context={"a": 2**60 + 1, "b": 1})
    forced = await call(client, SAVE, sessionId="unchanged", context={"a": 2**60 + 1, "b": 1}, force=True)
    assert (changed["status"], forced["status"]) == ("SAVED", "SAVED")


async def lists_are_filtered_and_paged(client):
    for n in range(5):
        await call(client, SAVE, sessionId="listed", context={"n": n}, agentId="me",
                   metadata={"name": f"step {n}", "tags": ["odd"] if n % 2 else []})
    page = await call(client, LIST, sessionId="listed", limit=2)
    assert page["total"] == 5 and page["hasMore"] and len(page["checkpoints"]) == 2
    rest = await call(client, LIST, sessionId="listed", limit=10, cursor=page["nextCursor"])
    assert len(rest["checkpoints"]) == 3 and not rest["hasMore"]
    assert [c["metadata"]["name"] for c in page["checkpoints"] + rest["checkpoints"]] == [f"step {n}" for n in (4, 3, 2, 1, 0)]
    assert (await call(client, LIST, sessionId="listed", tags=["odd"]))["total"] == 2
    assert (await call(client, LIST, query="STEP 3"))["total"] == 1
    assert (await call(client, LIST, sessionId="listed", agentId="me", since="2020-01-01", until="2020-01-02"))["total"] == 0
    assert (await call(client, LIST, sessionId="listed", offset=4))["checkpoints"][0]["metadata"]["name"] == "step 0"


async def every_error_is_a_tool_result(client):
    head = (await call(client, SAVE, sessionId="errors", context={"n": 1}))["checkpointId"]
    await fails(client, "CHECKPOINT_NOT_FOUND", LOAD, checkpointId="nope")
    await fails(client, "SESSION_NOT_FOUND", LOAD, sessionId="nope")
    await fails(client, "SESSION_NOT_FOUND", LIST, sessionId="nope")
    await fails(client, "INVALID_INPUT", LOAD)
    await fails(client, "INVALID_INPUT", LOAD, checkpointId=head, sessionId="errors")
    await fails(client, "INVALID_INPUT", SAVE)
    await fails(client, "INVALID_INPUT", SAVE, context=[1])
    await fails(client, "INVALID_INPUT", SAVE, context={}, sessionId="a/b")
    await fails(client, "INVALID_INPUT", SAVE, context={}, sessionId="x" * 129)
    await fails(client, "INVALID_INPUT", SAVE, context={"n": 2**64})
    await fails(client, "INVALID_INPUT", SAVE, context={}, metadata={"tags": "no"})
    await fails(client, "INVALID_INPUT", SAVE, context={}, metadata={"big": "x" * 20000})
    assert "unknwon" in (await fails(client, "INVALID_INPUT", SAVE, context={}, unknwon=1))["message"]
    await fails(client, "INVALID_INPUT", LIST, limit=0)
    await fails(client, "INVALID_INPUT", LIST, since="yesterday")
    conflict = await fails(client, "CONFLICT", SAVE, sessionId="errors", context={"n": 2}, expectedCheckpointId="older")
    assert conflict["details"]["actualCheckpointId"] == head
    await call(client, SAVE, context={"n": 1}, idempotencyKey="k")
    await fails(client, "CONFLICT", SAVE, context={"n": 2}, idempotencyKey="k")
    await fails(client, "STORAGE_QUOTA_EXCEEDED", SAVE, context={"t": noise(15_000_000)})
    try:
        await client.call_tool("no_such_tool", {})
    except MCPError as error:
        assert error.error.code == -32602, error
    else:
        raise AssertionError("an unknown tool was called")


async def what_is_put_is_stashed_found_and_taken_back(client):
    await call(client, TASK, project_id="p", task_id="t")
    texts = ["We keep amounts in cents.", "error: cannot open ledger.db", "x" * 5000]
    put = await call(client, PUT, project_id="p", texts=texts, type="log")
    assert put["added"] == 3 and len(set(put["segment_ids"])) == 3 and put["operation_id"], put
    assert (await call(client, PUT, project_id="p", texts=texts[:1], type="log"))["touched"] == 1
    first, second, long = put["segment_ids"]
    await call(client, PIN, project_id="p", segment_ids=[first])
    snapshot = await call(client, SNAPSHOT, project_id="p", name="before")
    plan = (await call(client, GC, project_id="p", target_tokens=1))["pruning_plan"]
    assert plan["segment_count"] == 1 and first not in plan["stash_segments"], plan
    pinned = await fails(client, "INVALID_PARAMETER", PRUNE, project_id="p", segment_ids=[first, second], action="stash")
    assert pinned["details"]["pinned"] == [first], pinned
    stashed = await call(client, STASH, project_id="p", query='"cannot open"')
    assert stashed["stashed_segments"] == [second] and stashed["tokens_stashed"] > 0, stashed
    found = await call(client, SEARCH, query="ledger error", filters=json.dumps({"type": "log"}))
    assert [s["segment_id"] for s in found["segments"]] == [second] and found["total_matches"] == 1, found
    moved = await call(client, RETRIEVE, project_id="p", query="ledger", move_to_active=True)
    assert moved["moved_to_active"] == [second], moved
    await call(client, UNDO, project_id="p", operation_id=moved["operation_id"])
    await call(client, UNDO, project_id="p")
    working = await call(client, WORKING, project_id="p")
    assert working["segment_count"] == 3 and working["working_set"]["task_id"] == "t", working
    cut = next(s for s in working["segments"] if s["segment_id"] == long)
    assert len(cut["text"]) < 5000 and (await call(client, EXPAND, handle=cut["handle"]))["content"] == texts[2]
    await call(client, PRUNE, project_id="p", segment_ids=[second, long], action="delete", confirm=True)
    restored = await call(client, RESTORE, snapshot_id=snapshot["snapshot_id"])
    assert restored["segments_restored"] == 2, restored
    assert (await call(client, OF_TASK, project_id="p"))["segment_count"] == 3
    assert (await call(client, USAGE, project_id="p"))["usage_metrics"]["pinned_segments_count"] == 1
    await call(client, UNPIN, project_id="p", segment_ids=[first])
    assert (await call(client, PROJECTS))["projects"] == ["p"]
    await fails(client, "INVALID_PARAMETER", USAGE)
    await fails(client, "INVALID_PARAMETER", STASH, filters="{")
    await fails(client, "SEGMENT_NOT_FOUND", PIN, project_id="p", segment_ids=["none"])


async def the_oldest_checkpoint_is_archived(client):
    saved = [(await call(client, SAVE, sessionId="full", context={"n": n}))["checkpointId"] for n in range(7)]
    listed = await call(client, LIST, sessionId="full")
    assert [c["checkpointId"] for c in listed["checkpoints"]] == saved[:1:-1] and listed["total"] == 5
    assert (await call(client, LOAD, checkpointId=saved[0]))["archived"] is True


def noise(length):
    import random
    return random.Random(1).randbytes(length * 3 // 4).hex()[:length * 3 // 2]


TESTS = [tools_have_schemas_and_annotations, what_is_saved_is_loaded, a_view_fits_and_its_handles_lead_back,
         unchanged_is_skipped_and_force_saves, lists_are_filtered_and_paged, every_error_is_a_tool_result, the_oldest_checkpoint_is_archived,
         what_is_put_is_stashed_found_and_taken_back]


ENV = {"WAYSTONE_MAX_CHECKPOINTS": "5", "WAYSTONE_PROJECT": "test"}


@contextlib.contextmanager
def stdio(binary):
    with tempfile.TemporaryDirectory() as directory:
        yield StdioServerParameters(command=binary, args=["mcp"], env={"WAYSTONE_DATA_DIR": directory, **ENV})


@contextlib.contextmanager
def http(binary):
    with served(binary, **ENV) as (url, _):
        yield f"{url}/mcp"


async def run(binary, transport, mode, test):
    with transport(binary) as server:
        async with Client(server, mode=mode, read_timeout_seconds=60) as client:
            assert client.protocol_version == PROTOCOLS[mode], client.protocol_version
            await test(client)


def main(binary):
    passed = failed = 0
    for transport in (stdio, http):
        for mode in PROTOCOLS:
            for test in TESTS:
                case = f"{transport.__name__:5} {mode:10} {test.__name__}"
                try:
                    asyncio.run(run(binary, transport, mode, test))
                    passed += 1
                    print(f"ok      {case}")
                except BaseException as error:  # a task group wraps what went wrong
                    failed += 1
                    while getattr(error, "exceptions", None):
                        error = error.exceptions[0]
                    print(f"FAILED  {case}: {type(error).__name__}: {error}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
