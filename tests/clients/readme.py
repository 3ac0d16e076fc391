"""Runs the README's curl and waystone examples as written, but for the port and the name of the binary.

Usage: readme.py BINARY README
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from served import served


def commands(readme):
    """Lines of the README's shell blocks, without their comments."""
    for block in re.findall(r"```bash\n(.*?)```", readme, re.S):
        for line in block.splitlines():
            yield re.split(r"\s{3,}#", line)[0].strip()


def run(line, folder, env):
    # A stream of events has no end.
    is_stream = "/events" in line
    limit = 2 if is_stream else 60
    try:
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=limit)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout
    except subprocess.TimeoutExpired as stream:
        assert is_stream, f"{line}: it did not end"
        return (stream.stdout or b"").decode()


def main(binary, readme):
    binary, readme = os.path.abspath(binary), open(readme).read()
    passed = 0
    with served(binary) as (url, env), tempfile.TemporaryDirectory() as folder:
        os.symlink(binary, os.path.join(folder, "waystone"))
        # Clients of whoever runs this are none of its business.
        env["PATH"], env["HOME"] = folder + os.pathsep + env["PATH"], folder
        # Twice: who follows it again must not meet what is left of the first time.
        for line in [*commands(readme)] * 2:
            if not line.startswith(("curl", "waystone", "echo")):
                continue
            line = line.replace("http://127.0.0.1:3000", url)
            if "<CHECKPOINT>" in line:
                listed = json.loads(run("waystone checkpoint list --json", folder, env))
                line = line.replace("<CHECKPOINT>", listed["checkpoints"][0]["checkpointId"])
            if "<CONTEXT>" in line:
                listed = json.loads(run("waystone context list --json", folder, env))
                line = line.replace("<CONTEXT>", listed["contexts"][0]["id"])
            if line.startswith(("waystone checkpoint delete", "waystone session delete", "waystone install")):
                line += " --yes"
            output = run(line, folder, env)
            if "/api/events" in line:
                assert "event: checkpoint.saved" in output, output
            elif "/events" in line:
                # Whether the answer was still being written depends on how fast the lines before were.
                assert "error" not in output, output
            elif "/metrics" in line:
                assert "# TYPE waystone_" in output, output
            elif line.startswith("curl"):
                assert "error" not in json.loads(output), f"{line}: {output}"
            passed += 1
    assert passed > 10, passed
    print(f"{passed} passed, 0 failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
