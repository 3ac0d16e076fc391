"""Runs the shell blocks of pages as written, but for the server's port, and looks up whatever else they name.

Usage: pages.py BINARY PAGE…

Every page has a home and a data directory of its own, and a server if one of its commands calls it. Each is followed twice:
who follows it again must not meet what is left of the first time. A block `output` right behind a block `bash` is
what that printed, in which `…` stands for anything, and ids, times, ages and numbers of operations for any of them.
"""

import contextlib
import functools
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from served import served

ROOT = pathlib.Path(__file__).parents[2]
ADDRESS = "http://127.0.0.1:3000"
# What people are asked before.
ASKS = re.compile(r"waystone (--\S+ \S+ )*(\w+ delete|context merge|install|restore-from)\b")
# Variables that are no settings of config.json.
OTHERS = {"WAYSTONE_DATA_DIR", "WAYSTONE_PASSPHRASE", "WAYSTONE_NEW_PASSPHRASE"}


def blocks(page):
    """Blocks of commands, each with what is printed below it, or None."""
    found = list(re.finditer(r"^```(\w*)\n(.*?)^```$", page, re.S | re.M))
    for block, after in zip(found, [*found[1:], None]):
        if block[1] == "bash":
            is_output = after and after[1] == "output" and not page[block.end() : after.start()].strip()
            yield commands(block[2]), after[2] if is_output else None


def commands(block):
    """Lines of a block without their comments; one that ends in a backslash goes on in the next."""
    for line in re.sub(r"\\\n\s*", "", block).splitlines():
        line = re.split(r"\s{3,}#|^#", line)[0].strip()
        if line:
            yield line


class Reader:
    """Someone who follows a page."""

    def __init__(self, folder, env, url):
        self.folder, self.env, self.url = folder, env, url
        self.passed = 0
        # The checkpoint that the last save on the command line named.
        self.saved = None

    def run(self, line):
        # A stream of events has no end.
        is_stream = "/events" in line
        try:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", line],
                cwd=self.folder,
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                timeout=2 if is_stream else 120,
            )
            assert done.returncode == 0, f"{line}: {done.stdout}"
            return done.stdout
        except subprocess.TimeoutExpired as stream:
            assert is_stream, f"{line}: it did not end"
            return (stream.stdout or b"").decode()

    def listed(self, command):
        return json.loads(self.run(f"waystone {command} --json"))

    def follow(self, line):
        if line == "cargo run --release -- serve":
            assert self.url, "nothing calls the server that is started"
            return ""
        if line.startswith("cargo xtask "):
            self.passed += 1
            return task(line)
        program = line.split()[0]
        if program == "zstdcat" and not shutil.which(program):
            print(f"NOT run, as there is no {program}: {line}")
            return ""
        line = self.fill(line)
        if ASKS.match(line):
            line += " --yes"
        output = self.run(line)
        self.check(line, output)
        self.passed += 1
        saved = re.search(r"^(?:saved|unchanged, kept) ([0-9a-f-]{36}) in session", output, re.M)
        self.saved = saved[1] if saved else None if " delete" in line.lower() else self.saved
        return output

    def fill(self, line):
        """Puts in what a reader finds in the output of the commands before."""
        line = line.replace(ADDRESS, self.url or ADDRESS)
        if "<CHECKPOINT>" in line:
            line = line.replace("<CHECKPOINT>", self.saved or self.listed("checkpoint list")["checkpoints"][0]["checkpointId"])
        if "<SEGMENT>" in line:
            line = line.replace("<SEGMENT>", self.listed("segment list")["segments"][0]["segment_id"])
        if "<SNAPSHOT>" in line:
            line = line.replace("<SNAPSHOT>", self.listed("task snapshots")["snapshots"][0]["snapshot_id"])
        if "<CONTEXT>" in line:
            line = line.replace("<CONTEXT>", self.listed("context list")["contexts"][0]["id"])
        if "<MESSAGE>" in line:
            line = line.replace("<MESSAGE>", self.listed("context show " + self.newest())["messages"][0]["id"])
        if "<CALL>" in line:
            line = line.replace("<CALL>", self.waiting())
        return line

    def newest(self):
        return self.listed("context list")["contexts"][0]["id"]

    def waiting(self):
        """The call that someone has to decide about or to answer; the model needs a moment until it makes one."""
        for _ in range(200):
            state = json.loads(self.run(f"curl -s {self.url}/api/contexts/{self.newest()}/state"))
            calls = [*state.get("pending_tool_calls", []), *state.get("awaited_tool_calls", [])]
            if calls:
                return calls[0]["id"]
            time.sleep(0.05)
        raise AssertionError(f"no call waits: {state}")

    def check(self, line, output):
        if "/api/events" in line:
            assert "event: checkpoint.saved" in output, output
        elif "/events" in line:
            # Whether the answer was still being written depends on how fast the lines before were.
            assert "error" not in output, output
        elif "/metrics" in line:
            assert "# TYPE waystone_" in output, output
        elif line.startswith("curl") and output:
            assert "error" not in json.loads(output), f"{line}: {output}"


@functools.cache
def task(line):
    """Figures take hours: that the task is there must do."""
    asked = subprocess.run([*line.split(), "--help"], cwd=ROOT, capture_output=True, text=True)
    assert asked.returncode == 0, f"{line}: {asked.stderr}"
    return ""


def same(text):
    """Text without what differs from run to run."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|<[A-Z]+>", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T][\d:.]+Z", "TIME", text)
    text = re.sub(r"\b(now|\d+ (s|min|ms|µs)( ago)?)\b", "AGE", text)
    text = re.sub(r"\b(undo|operation) \d+", r"\1 N", text)
    return re.sub(r" +", " ", re.sub(r" +$", "", text, flags=re.M)).strip()


def compare(shown, output):
    wanted = ".*".join(re.escape(part.strip()) for part in same(shown).split("…"))
    assert re.fullmatch(r"\s*" + wanted + r"\s*", same(output), re.S), f"shown:\n{shown}\nprinted:\n{output}"


def follow(binary, page):
    text = page.read_text()
    found = [(list(lines), shown) for lines, shown in blocks(text)]
    if not found:
        return 0
    with tempfile.TemporaryDirectory() as home:
        folder = os.path.join(home, "work")
        os.makedirs(os.path.join(home, "bin"))
        os.mkdir(folder)
        os.symlink(binary, os.path.join(home, "bin", "waystone"))
        # Clients of whoever runs this are none of its business.
        env = {
            "HOME": home,
            "PATH": os.path.join(home, "bin") + os.pathsep + os.environ["PATH"],
            "WAYSTONE_DATA_DIR": os.path.join(home, ".local/share/waystone"),
        }
        has_server = any(ADDRESS in line for lines, _ in found for line in lines)
        with served(binary, **env) if has_server else alone(env) as (url, env):
            reader = Reader(folder, env, url)
            for lines, shown in found:
                output = "".join([reader.follow(line) for line in lines])
                if shown is not None:
                    compare(shown, output)
            for lines, _ in found:
                for line in lines:
                    reader.follow(line)
    return reader.passed


@contextlib.contextmanager
def alone(env):
    others = {name: value for name, value in os.environ.items() if not name.startswith(("WAYSTONE_", "WORKRAIL_"))}
    yield None, {**others, **env}


class Names:
    """What there is: commands with their flags, routes and variables."""

    def __init__(self, binary):
        self.binary = binary
        schema = json.loads(self.ask("config", "schema"))
        told = json.dumps(schema)
        self.variables = OTHERS | set(re.findall(r"WAYSTONE_[A-Z_]+", told))
        with served(binary) as (url, _):
            document = json.loads(subprocess.check_output(["curl", "-s", url + "/api/openapi.json"]))
        self.routes = {(method.upper(), route(path)) for path, methods in document["paths"].items() for method in methods}

    @functools.cache
    def ask(self, *arguments):
        asked = subprocess.run([self.binary, *arguments], capture_output=True, text=True)
        return asked.stdout if asked.returncode == 0 else None

    def check(self, page):
        text = page.read_text()
        for variable in re.findall(r"WAYSTONE_[A-Z_]*[A-Z]", text):
            assert variable in self.variables, f"{page}: there is no variable {variable}"
        for span in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)):
            words = span.split()
            if words[:1] == ["waystone"]:
                self.command(page, words[1:])
            elif words[:2] == ["cargo", "xtask"]:
                task(" ".join(itertools.takewhile(re.compile("[a-z]+").fullmatch, words)))
            elif len(words) > 1 and words[0] in ("GET", "POST", "PUT", "PATCH", "DELETE"):
                self.route(page, words[0], words[1])

    def command(self, page, words):
        path = []
        for word in words:
            if not re.fullmatch(r"[a-z][a-z-]*", word) or self.ask(*path, word, "--help") is None:
                break
            path.append(word)
        assert path or not words or words[0].startswith("-"), f"{page}: there is no command waystone {' '.join(words)}"
        told = self.ask(*path, "--help")
        for flag in re.findall(r"(?<!\S)\[?(--[a-z-]+)", " ".join(words)):
            assert flag in told, f"{page}: waystone {' '.join(path)} has no {flag}"

    def route(self, page, method, path):
        wanted = route(re.split(r"[?\[]", path)[0])
        if wanted.startswith("…"):
            is_there = any(method == one and known.endswith(wanted[1:]) for one, known in self.routes)
        else:
            is_there = (method, wanted) in self.routes
        assert is_there, f"{page}: there is no route {method} {path}"


def route(path):
    return re.sub(r"\{[^}]*\}", "{}", path)


def main(binary, *pages):
    binary = os.path.abspath(binary)
    names = Names(binary)
    passed = 0
    for page in map(pathlib.Path, pages):
        names.check(page)
        followed = follow(binary, page)
        print(f"{page.name}: {followed} commands", flush=True)
        passed += followed
    assert passed > 0, "there is nothing to follow"
    print(f"{passed} passed, 0 failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
