"""A stand-in for an OpenAI-compatible server, with a behaviour chosen by its arguments.

usage: openai_server.py PORT [MODE]

MODE is one of: normal, strict (refuses unknown fields), busy (429 to every second request), garbage, endless (a line of 64 MiB),
cut (ends answers early), dies (exits at the fifth request), stubborn (ignores SIGINT and SIGTERM).

The environment variable ANSWER is the text of each token.
"""

import http.server
import json
import os
import signal
import sys
import threading
import time

PORT, MODE = int(sys.argv[1]), (sys.argv[2] if len(sys.argv) > 2 else "normal")
FIRST, NEXT = 0.03, 0.005
ANSWER = os.environ.get("ANSWER", " a")
KNOWN = {"model", "prompt", "messages", "max_tokens", "temperature", "stream", "stream_options"}
lock = threading.Lock()
seen = {"requests": 0, "prompt": 0, "output": 0, "connections": 0}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        with lock:
            seen["connections"] += 1

    def log_message(self, *_):
        pass

    def plain(self, status, text, kind="application/json"):
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/health":
            self.plain(200, "{}")
        elif self.path == "/v1/models":
            self.plain(200, json.dumps({"object": "list", "data": [{"id": "stand-in"}]}))
        elif self.path == "/metrics":
            text = "vllm:prompt_tokens_total %d\nvllm:generation_tokens_total %d\n" % (seen["prompt"], seen["output"])
            text += "vllm:kv_cache_usage_perc 0.25\nconnections_total %d\n" % seen["connections"]
            self.plain(200, text, "text/plain")
        else:
            self.plain(404, "{}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with lock:
            seen["requests"] += 1
            number = seen["requests"]
        if MODE == "strict" and set(body) - KNOWN:
            return self.plain(422, json.dumps({"error": "unknown fields"}))
        if MODE == "busy" and number % 2 == 0:
            return self.plain(429, json.dumps({"error": "too many requests"}))
        if MODE == "dies" and number >= 5:
            print("out of memory", file=sys.stderr, flush=True)
            os._exit(3)
        if MODE == "garbage":
            return self.plain(200, "<html>hello</html>", "text/html")
        prompt, tokens = body.get("prompt", body.get("messages")), body["max_tokens"]
        with lock:
            seen["prompt"] += len(prompt)
            seen["output"] += tokens
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if MODE == "endless":
            return self.endless()
        for number in range(tokens):
            time.sleep(FIRST if number == 0 else NEXT)
            self.event({"choices": [{"index": 0, "text": ANSWER}]})
            if MODE == "cut" and number == 1:
                self.close_connection = True
                return
        if body.get("stream_options", {}).get("include_usage"):
            self.event({"choices": [], "usage": {"prompt_tokens": len(prompt), "completion_tokens": tokens}})
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def endless(self):
        part = b"data: " + b"a" * (1 << 20)
        try:
            for _ in range(64):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def event(self, data):
        text = data if isinstance(data, str) else json.dumps(data)
        line = ("data: %s\n\n" % text).encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def end(*_):
    os._exit(0)


for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN if MODE == "stubborn" else end)
Server(("127.0.0.1", PORT), Handler).serve_forever()
