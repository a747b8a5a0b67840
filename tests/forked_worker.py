"""Workers of pytest-xdist as forks of a process that has imported all tests.

Each worker would import every test module, and all of Pilotage, for itself. As a fork it finds them imported, and so
does the program of `tests/fork_server.py`, which all workers share.

    python -m tests.forked_worker SOCKET PYTEST-ARGUMENT...    imports what pytest collects, then serves
    python tests/forked_worker.py SOCKET                       is one worker, in place of an interpreter
"""

# As one worker it starts with each session: it imports nothing that it does not need.
import os
import signal
import socket
import sys

FILES = (0, 1, 2)
"""Standard input, output and error output, which a worker gets from its client."""


def be_worker(path: str) -> int:
    """Have a fork do what the controller of the session asks for, and return its exit code."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [b"w"], list(FILES))
        for file in FILES[:2]:
            os.close(file)  # the controller waits for the end of the worker's output
        code = server.recv(1)
        return code[0] if code else 1


def serve(listener: socket.socket) -> socket.socket:
    """Fork for each client until SIGTERM. Returns in each fork only, with the client's connection."""
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True
        listener.close()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    guards = []
    while not ended:
        try:
            client, _ = listener.accept()
        except OSError:
            break
        guard = os.fork()
        if guard == 0:
            listener.close()
            return client
        guards.append(guard)
        client.close()
    for guard in guards:
        os.waitpid(guard, 0)
    sys.exit()


def become_worker(client: socket.socket) -> None:
    """Run the session's commands in a fork of this fork, and tell the client how it ended."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        client.send(bytes([os.waitstatus_to_exitcode(status) & 255]))
        os._exit(0)
    _, files, _, _ = socket.recv_fds(client, 1, len(FILES))
    client.close()
    for target, file in zip(FILES, files, strict=True):
        os.dup2(file, target)
        os.close(file)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        stream = os.fdopen(number, "r" if number == 0 else "w", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["-c"]
    # The program that execnet sends to an interpreter that it has started.
    exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
    from tests import fork_server

    fork_server.end(0)


def collect(arguments: list[str]) -> int:
    """Import all test modules as pytest does. The program of `fork_server` starts if slow tests are among them."""
    import gc

    import pytest

    gc.disable()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process with threads must not fork

    class Slow:
        found = False

        def pytest_collection_finish(self, session: pytest.Session) -> None:
            self.found = any(item.get_closest_marker("slow") for item in session.items)

    slow = Slow()
    code = int(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *arguments], plugins=[slow]))
    if not code and slow.found:
        from tests import forked

        forked.start()
    del os.environ["OPENBLAS_NUM_THREADS"]
    gc.enable()
    gc.collect()
    gc.freeze()
    return code


def main(path: str, arguments: list[str]) -> None:
    if __spec__ is None:
        sys.exit(be_worker(path))
    if code := collect(arguments):
        sys.exit(code)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{path}.new")
        listener.listen(64)
        os.rename(f"{path}.new", path)
        become_worker(serve(listener))


if __name__ == "__main__":
    main(sys.argv[1], [] if __spec__ is None else sys.argv[2:])
