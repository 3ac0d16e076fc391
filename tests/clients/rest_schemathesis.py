"""Runs schemathesis with all its checks against a served store: no server error, no answer that is not documented.

Usage: rest_schemathesis.py BINARY [MAX_EXAMPLES]
"""

import os
import subprocess
import sys
import tempfile


def main(binary, examples="25"):
    with tempfile.TemporaryDirectory() as directory:
        env = {**os.environ, "WAYSTONE_DATA_DIR": directory}
        server = subprocess.Popen([binary, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True, env=env)
        try:
            url = server.stdout.readline().split()[-1]
            schemathesis = os.path.join(os.path.dirname(sys.executable), "schemathesis")
            # A stream of events does not end, so it cannot be waited for; its own tests read it.
            config = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schemathesis.toml")
            command = [schemathesis, "--config-file", config, "run", f"{url}/api/openapi.json", "--checks", "all", "--exclude-path", "/api/events",
                       "--max-examples", examples, "--request-timeout", "10", "--no-color",
                       "--generation-database", "none", "--seed", "1"]
            done = subprocess.run(command, cwd=directory, timeout=600)
            return done.returncode
        finally:
            server.terminate()
            server.wait(10)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
