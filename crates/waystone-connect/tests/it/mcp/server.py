"""A tool server that does as its settings say, over standard input and output or over HTTP.

Usage: server.py SETTINGS [ARGUMENT]..., with the port in CONTROL to which it tells every message that it hears. Whoever listens
there also learns when it has ended, and all that it started.
"""

import http.server
import json
import os
import queue
import socket
import subprocess
import sys
import threading

SETTINGS = json.loads(sys.argv[1])
NAMES = ["change", "crash", "echo", "error", "escape", "fork", "long", "result", "surroundings", "wait"]
TOOLS = SETTINGS.get("tools", [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES])
CONTROL = socket.create_connection(("127.0.0.1", int(os.environ["CONTROL"])))
CONTROL.set_inheritable(True)
LOCK = threading.Lock()
SUBSCRIPTIONS = []


def tell(message):
    with LOCK:
        CONTROL.sendall(json.dumps(message).encode() + b"\n")


def capabilities():
    return {"tools": {"listChanged": True}}


def initialize(params):
    if SETTINGS.get("stateless"):
        return error(-32601, "there is no handshake")
    version = SETTINGS.get("version", params["protocolVersion"])
    return {"protocolVersion": version, "capabilities": capabilities(), "serverInfo": {"name": "fake", "version": "1"}}


def discover(_):
    if not SETTINGS.get("stateless"):
        return error(-32601, "method not found")
    return {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities(), "ttlMs": 0,
            "cacheScope": "private"}


def list_tools(params):
    begin, size = int((params or {}).get("cursor", 0)), SETTINGS.get("page", len(TOOLS) or 1)
    listed = {"tools": TOOLS[begin:begin + size]}
    return {**listed, "nextCursor": str(begin + size)} if begin + size < len(TOOLS) else listed


def call(params, notify):
    name, arguments = params["name"], params["arguments"]
    if name == "change":
        TOOLS.append({"name": arguments["name"], "inputSchema": {"type": "object"}})
        for subscription in SUBSCRIPTIONS or [None]:
            about = {"_meta": {"io.modelcontextprotocol/subscriptionId": subscription}} if SUBSCRIPTIONS else {}
            notify({"method": "notifications/tools/list_changed", "params": about})
        return text("changed")
    if name == "crash":
        os._exit(3)
    if name == "error":
        return error(arguments["code"], arguments["message"])
    if name == "escape":
        # Ends when nobody listens to what is told any more.
        subprocess.Popen(["cat"], stdin=CONTROL, start_new_session=True)
        return text("escaped")
    if name == "fork":
        subprocess.Popen(["sleep", "1000"], close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return text("forked")
    if name == "long":
        return text("x" * arguments["bytes"])
    if name == "result":
        return arguments["result"]
    if name == "surroundings":
        environment = {name: os.environ.get(name) for name in arguments["names"]}
        return {"content": [], "structuredContent": {"arguments": sys.argv[2:], "cwd": os.getcwd(), "env": environment}}
    return None if name == "wait" else text(arguments["text"])


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def error(code, message):
    return {"error": {"code": code, "message": message}}


def answer(message, notify):
    """The answer to `message`, or None."""
    method, params = message.get("method"), message.get("params")
    if method == "initialize":
        result = initialize(params)
    elif method == "server/discover":
        result = discover(params)
    elif method == "tools/list":
        result = list_tools(params)
    elif method == "tools/call":
        result = call(params, notify)
    elif method == "subscriptions/listen":
        SUBSCRIPTIONS.append(message["id"])
        meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        notify({"method": "notifications/subscriptions/acknowledged",
                "params": {"_meta": meta, "notifications": params["notifications"]}})
        result = None
    else:
        result = error(-32601, "method not found") if "id" in message else None
    if result is None:
        return None
    return {"jsonrpc": "2.0", "id": message["id"], **(result if "error" in result else {"result": result})}


def write(message):
    with LOCK:
        for noise in SETTINGS.get("noise", []):
            print(noise)
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def serve_stdio():
    for line in sys.stdin:
        message = json.loads(line)
        tell(message)
        if SETTINGS.get("silent") in (True, message.get("method")):
            continue
        answered = answer(message, write)
        if answered is not None:
            write(answered)
    tell({"method": "end of input"})
    while SETTINGS.get("stubborn"):
        threading.Event().wait()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sessions = set()
    notifications = queue.Queue()

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.headers.get("Mcp-Session-Id")
        tell({**message, "headers": dict(self.headers)})
        if message.get("method") in SETTINGS.get("statuses", {}):
            return self.reply(SETTINGS["statuses"][message["method"]], "text/plain", b"no\nway")
        is_first = message.get("method") in ("initialize", "server/discover")
        if not is_first and not SETTINGS.get("stateless") and session not in self.sessions:
            return self.reply(404, "application/json", b"{}")
        if message.get("params", {}).get("name") == "crash" and SETTINGS.get("hangs_up"):
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        answered = answer(message, lambda told: self.notifications.put({"jsonrpc": "2.0", **told}))
        if answered is None:
            return self.reply(202, "text/plain", b"")
        if message["method"] == "initialize":
            session = f"session-{os.getpid()}"
            self.sessions.add(session)
        if "error" in answered and SETTINGS.get("stateless"):
            return self.reply(400, "application/json", json.dumps({**answered, "id": None}).encode())
        body = json.dumps(answered).encode()
        if SETTINGS.get("events"):
            return self.reply(200, "text/event-stream", b": hello\n\nid: 1\ndata: " + body + b"\n\n", session)
        return self.reply(200, "application/json", body, session)

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b": here\n\n")
        tell({"method": "GET"})
        while True:
            body = json.dumps(self.notifications.get())
            self.wfile.write(f"data: {body}\n\n".encode())
            tell({"method": "told"})

    def do_DELETE(self):
        tell({"method": "DELETE", "session": self.headers.get("Mcp-Session-Id")})
        self.reply(200, "text/plain", b"")

    def reply(self, status, kind, body, session=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve_http():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", SETTINGS["port"]), Handler)
    tell({"port": server.server_address[1]})
    server.serve_forever()


def main():
    if "stderr" in SETTINGS:
        print(SETTINGS["stderr"], file=sys.stderr, flush=True)
    if "exit" in SETTINGS:
        sys.exit(SETTINGS["exit"])
    serve_http() if "port" in SETTINGS else serve_stdio()


if __name__ == "__main__":
    main()
