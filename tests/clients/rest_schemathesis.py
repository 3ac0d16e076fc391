"""Runs schemathesis with all its checks against a served store: no server error, no answer that is not documented.

Usage: rest_schemathesis.py BINARY [MAX_EXAMPLES]
"""

import os
import subprocess
import sys
import tempfile

from served import served


def main(binary, examples="25"):
    with served(binary) as (url, env), tempfile.TemporaryDirectory() as folder:
        schemathesis = os.path.join(os.path.dirname(sys.executable), "schemathesis")
        config = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schemathesis.toml")
        # A stream of events does not end, so it cannot be waited for; its own tests read it.
        command = [schemathesis, "--config-file", config, "run", f"{url}/api/openapi.json", "--checks", "all",
                   "--exclude-path", "/api/events", "--exclude-path", "/api/contexts/{context_id}/events", "--max-examples", examples, "--request-timeout", "10", "--no-color",
                   "--generation-database", "none", "--seed", "1"]
        return subprocess.run(command, cwd=folder, env=env, timeout=600).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
