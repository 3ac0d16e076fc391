"""Runs what is in `examples/`, as its README says: an agent that is killed, a page in a browser, a shell script.

Usage: examples.py BINARY
"""

import contextlib
import fcntl
import functools
import http.server
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

from browser import browse
from pages import blocks
from served import served

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Drives the page from a frame of the same origin, so that the page itself is the one that people open: types a message
# and sends it, notes what can be seen of the answer meanwhile, looks again after a reload, and reloads in an answer.
DRIVER = """<!doctype html>
<iframe id="frame"></iframe>
<script type="module">
const told = { seen: [], states: [] }, asked = new URLSearchParams(location.search);
const page = () => frame.contentDocument;
const until = async (what, is) => {
  for (const end = performance.now() + 15000; !is(); await new Promise(next => setTimeout(next, 5)))
    if (performance.now() > end) throw new Error(`${what} did not happen: ${page()?.body?.innerText}`);
};
const open = async go => {
  await new Promise(done => { frame.onload = done; go(); });
  await until('opening', () => page().getElementById('state')?.textContent || page().getElementById('send')?.disabled === false);
};
const say = text => {
  page().getElementById('text').value = text;
  page().getElementById('send').click();
};
const lines = () => [...page().querySelectorAll('#said li')].map(({ id, className, textContent }) => ({ id, role: className, text: textContent }));
try {
  await open(() => frame.src = `/chat.html${location.search}`);
  told.refused = page().getElementById('state').textContent;
  if (!told.refused) {
    new MutationObserver(() => {
      const text = page().querySelector('.assistant')?.textContent, state = page().getElementById('state').textContent;
      if (text && told.seen.at(-1)?.text !== text) told.seen.push({ text, at: performance.now() });
      if (state && told.states.at(-1) !== state) told.states.push(state);
    }).observe(page().body, { subtree: true, childList: true, characterData: true });
    say(asked.get('say'));
    await until('the answer', () => told.states.at(-1) === 'Idle');
    told.first = lines();
    told.markup = page().querySelectorAll('#said :not(li)').length;
    told.context = frame.contentWindow.location.hash.slice(1);
    await open(() => frame.contentWindow.location.reload());
    told.reloaded = lines();
    say('a b c d e f g h i j k l m n o p q r s t u v w x y z');  // each word is a delta: enough of them for a reload
    await until('another answer', () => lines()[3]?.text.includes(' m '));
    await open(() => frame.contentWindow.location.reload());
    const context = `${asked.get('server')}/api/contexts/${told.context}`, stored = { messages: [] };
    while (stored.messages.length < 4) Object.assign(stored, await fetch(`${context}/messages`).then(reply => reply.json()));
    await until('the whole answer', () => lines().at(-1)?.text === stored.messages[3].content[0].text);
    told.lines = lines();
  }
} catch (error) {
  told.error = String(error);
}
await fetch('/told', { method: 'POST', body: JSON.stringify(told) });
</script>
"""


@contextlib.contextmanager
def site():
    """Serves the examples as `python3 -m http.server` does, and the driver besides; yields the origin and a way to wait."""
    told, is_told = [], threading.Event()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if not self.path.startswith("/?"):
                return super().do_GET()
            self.answer(DRIVER.encode())

        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(b"")
            is_told.set()

        def answer(self, body):
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    def wait():
        assert is_told.wait(60), "the page told nothing"
        return told[0]

    handler = functools.partial(Handler, directory=EXAMPLES)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", wait
        server.shutdown()


@contextlib.contextmanager
def directory(binary):
    """A data directory of its own, and an environment in which `waystone` and `python` are those that are tested."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "bin"))
        os.symlink(os.path.abspath(binary), os.path.join(folder, "bin", "waystone"))
        others = {name: value for name, value in os.environ.items() if not name.startswith(("WAYSTONE_", "WORKRAIL_"))}
        yield {**others, "WAYSTONE_DATA_DIR": os.path.join(folder, "data"), "HOME": folder,
               "PATH": os.pathsep.join([os.path.join(folder, "bin"), os.path.dirname(sys.executable), others["PATH"]])}


def run(line, env):
    return subprocess.run(["bash", "-c", "exec " + line], cwd=EXAMPLES.parent, env=env, capture_output=True, text=True, timeout=60)


def waystone(env, *arguments, **options):
    done = subprocess.run(["waystone", *arguments, "--json"], env=env, capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def in_readme(name):
    """The README's lines that run an example."""
    page = (EXAMPLES / "README.md").read_text()
    lines = [line for lines, _ in blocks(page) for line in lines]
    lines = [line for line in lines if f"examples/{name}" in line]
    assert len(lines) == 2, lines
    return lines


def did(done):
    return re.findall(r"^doing: (.*)$", done.stdout, re.M)


def server_was_killed(env):
    """A server that ends well removes its file; the kernel drops the lock of one that is killed, and leaves the file."""
    [left] = (Path(env["WAYSTONE_DATA_DIR"]) / "run").glob("*.lock")
    with left.open() as file:
        for _ in range(100):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(0.05)
    return False


def an_agent_that_is_killed_goes_on_and_does_no_step_twice(binary):
    steps = runpy.run_path(str(EXAMPLES / "agent_loop.py"))["STEPS"]
    dying, again = in_readme("agent_loop.py")
    with directory(binary) as env:
        # Neither is the run that is looked for: one is of another project, the other other work.
        for project, workflow in (("elsewhere", "release"), ("shop", "billing")):
            waystone(env, "--project", project, "checkpoint", "save", project, "-", "--workflow", workflow, input='{"goal": "other"}')
        first = run(dying, env)
        assert first.returncode == -9 and did(first) == steps[:2], first
        assert server_was_killed(env), "the server outlives its agent"
        second = run(again, env)
        assert second.returncode == 0 and did(first) + did(second) == steps, second
        [session] = re.findall(r"^going on with (\S+): ", second.stdout, re.M)
        listed = waystone(env, "checkpoint", "list", session)
        assert listed["total"] == len(steps), listed
        # Written by whoever did them, and the first two not by the second.
        results = waystone(env, "checkpoint", "show", "--latest", session)["context"]["results"]
        by = [text.removeprefix(f"{step}: done by process ") for step, text in results.items()]
        assert list(results) == steps and by == by[:1] * 2 + by[-1:] * 3 and by[0] != by[-1], results
        # What is finished is left alone.
        third = run(again, env)
        assert third.returncode == 0 and did(third) == steps and "going on" not in third.stdout, third
        assert waystone(env, "checkpoint", "list", session)["total"] == len(steps)


def an_agent_may_be_killed_after_every_step(binary):
    steps = runpy.run_path(str(EXAMPLES / "agent_loop.py"))["STEPS"]
    with directory(binary) as env:
        for number, step in enumerate(steps, 1):
            done = run(f"python examples/agent_loop.py --die-after {number}", env)
            assert done.returncode == -9 and did(done) == [step], done
        [session] = waystone(env, "session", "list")["sessions"]
        assert session["checkpointCount"] == len(steps), session


def a_page_chats(binary):
    # What would run if it were taken for markup, and no longer than the demo repeats.
    said = '<b>Hi</b> <img src=x onerror="document.body.remove()">'
    with site() as (origin, wait), served(binary, WAYSTONE_ALLOWED_ORIGINS=origin) as (url, _):
        told = browse(f"{origin}/?{urllib.parse.urlencode({'server': url, 'say': said})}", wait)
        assert "error" not in told and not told["refused"], told
        with urllib.request.urlopen(f"{url}/api/contexts/{told['context']}/messages") as reply:
            messages = json.load(reply)["messages"]
    stored = [{"id": one["id"], "role": one["role"], "text": "".join(part["text"] for part in one["content"])} for one in messages]
    assert [one["role"] for one in stored] == ["user", "assistant"] * 2 and stored[0]["text"] == said, stored
    assert told["first"] == stored[:2] and told["reloaded"] == stored[:2] and told["markup"] == 0, (told, stored)
    assert told["lines"] == stored, (told, stored)
    answer, seen = stored[1]["text"], told["seen"]
    assert said in answer and len(seen) > 5 and seen[-1]["text"] == answer, told
    assert all(answer.startswith(one["text"]) for one in seen), told
    assert seen[-1]["at"] - seen[0]["at"] > 50, "it came all at once, not as it was written"
    assert "StreamingLLMResponse" in told["states"], told


def a_page_of_another_origin_says_that_it_may_not(binary):
    with site() as (origin, wait), served(binary) as (url, _):
        told = browse(f"{origin}/?{urllib.parse.urlencode({'server': url, 'say': 'x'})}", wait)
        with urllib.request.urlopen(f"{url}/api/contexts") as reply:
            contexts = json.load(reply)["contexts"]
    assert f"WAYSTONE_ALLOWED_ORIGINS does not name {origin}" in told["refused"] and contexts == [], told


def an_error_is_found_again_in_a_stashed_log(binary):
    made_up, real = in_readme("build_log.sh")
    with directory(binary) as env:
        handles = set()
        for line, error, number, total in [
            (made_up, "src/ledger.c:214:17: error: implicit declaration of function 'ledger_open'", 2719, 4002),
            (made_up, "src/ledger.c:214:17: error: implicit declaration of function 'ledger_open'", 2719, 4002),
            (real, "ModuleNotFoundError: No module named 'ledger'", 3, 3),
        ]:
            done = run(line, env)
            assert done.returncode == 0 and "the build failed" in done.stdout, done
            [handle] = re.findall(r"^in: +(ws:segment:\S+)$", done.stdout, re.M)
            assert re.findall(r"^found: (.*)$", done.stdout, re.M) == [error], done
            # Said, and then shown with its neighbours.
            assert f"line {number}," in done.stdout and error in done.stdout.split("what stands around it:\n")[1].splitlines(), done
            log = waystone(env, "expand", handle)["content"].splitlines()
            assert len(log) == total and log[number - 1] == error, (len(log), log[number - 1])
            handles.add(handle)
        # What was put twice is there once, and none of it is in the window.
        listed = waystone(env, "segment", "list", "--all", cwd=EXAMPLES.parent)["segments"]
        assert {segment["tier"] for segment in listed} == {"stashed"}, listed
        assert {f"ws:segment:{segment['segment_id']}" for segment in listed} == handles and len(handles) == 2, (listed, handles)


def the_page_is_one_that_can_be_read_at_a_glance(_):
    assert len((EXAMPLES / "chat.html").read_text().splitlines()) <= 50


TESTS = [an_agent_that_is_killed_goes_on_and_does_no_step_twice, an_agent_may_be_killed_after_every_step,
         an_error_is_found_again_in_a_stashed_log, the_page_is_one_that_can_be_read_at_a_glance]
IN_A_BROWSER = [a_page_chats, a_page_of_another_origin_says_that_it_may_not]


def main(binary):
    failed, tests = 0, list(TESTS)
    if shutil.which("chromium"):
        tests += IN_A_BROWSER
    else:
        print("NOT run, as there is no chromium: examples/chat.html")
    for test in tests:
        try:
            test(binary)
            print(f"ok      {test.__name__}")
        except Exception as error:
            failed += 1
            print(f"FAILED  {test.__name__}: {type(error).__name__}: {error}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
