"""The processes of the run: servers, Litestream, single commands; and a receiver of deliveries."""

import os
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LISTENING = "cued listening on "
PATIENCE = 30


def clean_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("CUED_")}


def run(*command, code=0):
    """A command that ends with `code`: its two outputs."""
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != code:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class Process:
    """A process that is killed at the end of the `with` block, if it has not ended."""

    def __init__(self, command, log):
        self._log = open(log, "a")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True, env=clean_environment()
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self._log.close()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE)


class Server(Process):
    def __init__(self, program, db, *flags):
        command = [program, "serve", "--dev", "--limits", "off", "--listen", "127.0.0.1:0", "--db", db, *flags]
        super().__init__(command, f"{db}.log")
        line = self.process.stdout.readline()
        if not line.startswith(LISTENING):
            raise AssertionError(f"cued did not start: {open(f'{db}.log').read()}")
        self.url = line[len(LISTENING):].strip()


class Litestream(Process):
    def __init__(self, program, db, replica, log):
        super().__init__([program, "replicate", db, f"file://{replica}"], log)
        # Read to the end, so that it never waits for its reader.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def kill(self):
        self.process.kill()
        self.process.wait()


class Receiver:
    """Answers 200 and keeps the id of the execution of each delivery."""

    def __init__(self):
        executions = self.executions = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                executions.append(self.headers["X-CueAPI-Execution-Id"])
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        ThreadingHTTPServer.request_queue_size = 128  # Python's 5 delays a burst
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
