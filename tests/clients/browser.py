"""Runs the example of the conversations' API in a browser: a page of another origin follows an answer as it is written.

The page is served from a port of its own. It may do so where `WAYSTONE_ALLOWED_ORIGINS` names it, and nowhere else.

Usage: browser.py BINARY
"""

import contextlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request

from served import served

# As the API's documentation has it, but for the address of the server, the model, and that it shows what it would log.
PAGE = """<!doctype html>
<title>A conversation</title>
<pre id="answer"></pre>
<script type="module">
const server = new URLSearchParams(location.search).get('server');
const told = { deltas: [] };
try {
  const context = await fetch(`${server}/api/contexts`, {
    method: 'POST',
    headers: {'Content-Type': 'application/json'},
    body: JSON.stringify({
      model_id: 'demo',
      mode: 'code'
    })
  }).then(r => r.json());

  const eventSource = new EventSource(`${server}/api/contexts/${context.id}/events`);
  eventSource.addEventListener('ContentDelta', (e) => {
    const data = JSON.parse(e.data);
    told.deltas.push({ ...data, at: performance.now() });
    document.getElementById('answer').textContent += data.delta;
  });
  const completed = new Promise((resolve, reject) => {
    eventSource.addEventListener('MessageCompleted', (e) => resolve(JSON.parse(e.data)));
    eventSource.onerror = () => reject(new Error('the events cannot be followed'));
  });

  await fetch(`${server}/api/contexts/${context.id}/messages`, {
    method: 'POST',
    headers: {'Content-Type': 'application/json'},
    body: JSON.stringify({
      content: 'Hello, how are you?'
    })
  });
  told.completed = await completed;
  eventSource.close();
} catch (error) {
  told.error = String(error);
}
told.shown = document.getElementById('answer').textContent;
await fetch('/told', { method: 'POST', body: JSON.stringify(told) });
</script>
"""


@contextlib.contextmanager
def page():
    """Serves the page, and yields its origin and a way to wait for what it tells."""
    told, is_told = [], threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            is_page = self.path.startswith("/?")
            self.answer(200 if is_page else 404, PAGE.encode() if is_page else b"")

        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(200, b"")
            is_told.set()

        def answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    def wait():
        assert is_told.wait(30), "the page told nothing"
        return told[0]

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", wait
        server.shutdown()


def browse(address, wait):
    """What the page tells in a browser that has never been used."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [shutil.which("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
                   f"--user-data-dir={profile}", "--remote-debugging-port=0", address]
        env = {**os.environ, "HOME": profile}
        browser = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return wait()
        finally:
            browser.terminate()
            browser.wait(20)


def follows_an_answer(binary):
    with page() as (origin, wait), served(binary, WAYSTONE_ALLOWED_ORIGINS=origin) as (url, _):
        told = browse(f"{origin}/?server={url}", wait)
    assert "error" not in told, told
    deltas, answer = told["deltas"], told["completed"]["final_content"]
    assert "Hello, how are you?" in answer, told
    # It says something as soon as it asks to be told, so the first words may be gone before; of the rest none is.
    assert len(deltas) > 3 and answer.endswith(told["shown"]), told
    assert [delta["sequence"] for delta in deltas] == list(range(deltas[0]["sequence"], deltas[-1]["sequence"] + 1)), told
    assert all(delta["message_id"] == told["completed"]["message_id"] for delta in deltas), told
    assert deltas[-1]["at"] - deltas[0]["at"] > 50, "they came all at once, not as they were written"


def is_refused(binary, **allowed):
    with page() as (origin, wait), served(binary, **allowed) as (url, _):
        told = browse(f"{origin}/?server={url}", wait)
        with urllib.request.urlopen(f"{url}/api/contexts") as reply:
            contexts = json.load(reply)["contexts"]
    assert told["deltas"] == [] and told["shown"] == "" and "Failed to fetch" in told["error"], told
    assert contexts == [], "a page that is not allowed has begun a conversation"


def main(binary):
    follows_an_answer(binary)
    is_refused(binary)
    is_refused(binary, WAYSTONE_ALLOWED_ORIGINS="http://127.0.0.1:1")
    print("3 passed, 0 failed")


if __name__ == "__main__":
    main(sys.argv[1])
