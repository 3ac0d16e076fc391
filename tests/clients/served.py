"""A `waystone serve` of its own for each test, on a free port and a directory that goes with it."""

import contextlib
import os
import subprocess
import tempfile


@contextlib.contextmanager
def served(binary, **env):
    """Yields the server's address and its environment."""
    with tempfile.TemporaryDirectory() as directory:
        # What the developer has set for an own server is not for this one.
        others = {name: value for name, value in os.environ.items() if not name.startswith(("WAYSTONE_", "WORKRAIL_"))}
        env = {**others, "WAYSTONE_DATA_DIR": directory, **env}
        server = subprocess.Popen([binary, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True, env=env)
        try:
            yield server.stdout.readline().split()[-1], env
        finally:
            server.terminate()
            assert server.wait(10) == 0, "the server did not end well"
