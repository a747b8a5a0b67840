"""An SMTP server that keeps the mail it gets, and that can refuse it or break off."""

from __future__ import annotations

import email.policy
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message


class SmtpDouble:
    """`answers`: the answer to each command that is not 250, such as {"RCPT": "550 no such user"}; "": break off."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.taken: list[Message] = []
        self.connections = 0
        self.address = ""

    def serve(self, handler: socketserver.StreamRequestHandler) -> None:
        def say(text: str) -> None:
            handler.wfile.write(f"{text}\r\n".encode())

        self.connections += 1
        say("220 double")
        for line in handler.rfile:
            verb = line.decode().split(maxsplit=1)[0].strip().upper()
            if verb == "DATA" and verb not in self.answers:
                say("354 go on")
                text = b"".join(iter(handler.rfile.readline, b".\r\n"))
                if self.answers.get("END") == "":
                    return
                self.taken.append(email.message_from_bytes(text, policy=email.policy.default))
            answer = self.answers.get(verb, "221 bye" if verb == "QUIT" else "250 taken")
            if not answer:
                return
            say(answer)
            if verb == "QUIT":
                return


@contextmanager
def running_smtp() -> Iterator[SmtpDouble]:
    double = SmtpDouble()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            double.serve(self)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        host, port = server.server_address
        double.address = f"{host!s}:{port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield double
        server.shutdown()
        thread.join()
