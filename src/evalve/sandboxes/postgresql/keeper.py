"""The program that holds an embedded PostgreSQL server: standard library only, one for each server.

Every process that uses the server holds a shared lock on `use.lock`. The keeper waits for the exclusive
one, which it is given when the last of them has ended, `kill -9` included. Then it stops the server and
removes its folder. Should the keeper itself be killed, the kernel stops the server (on Linux), and whoever
starts the next one removes the folder.

It reads one line of JSON, and writes one: `{"port": …, "pid": …}`, or `{"error": …}`.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

_READY = b"ready to accept connections"
_STARTS_AT_MOST = 3
"""Another program may take the port between the moment it is found free and the server's start."""
_LOG_BYTES = 1_000_000
_SETTINGS = {
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
    "dynamic_shared_memory_type": "mmap",
    "fsync": "off",
    "full_page_writes": "off",
    "jit": "off",
    "listen_addresses": "127.0.0.1",
    "log_min_error_statement": "panic",
    "max_wal_senders": "0",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "shared_buffers": "32MB",
    "synchronous_commit": "off",
    "timezone": "UTC",
    "unix_socket_directories": "",
    "wal_level": "minimal",
}
"""Nothing in it is worth a wait for the disk. Dropping a database scans the shared buffers, so they are few.
No statement is logged: one may have a password in it. Shared memory is in the folder, and goes with it."""


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    if os.fork():
        os._exit(0)  # so that it is nobody's child, and whoever started it need not wait for its end
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder = Path(asked["folder"])
    cluster = _Cluster(folder, Path(asked["install"]), asked["account"], asked["max_connections"])
    try:
        cluster.make(asked["password"])
        port = cluster.start()
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:
        cluster.remove()
        _tell({"error": str(error)})
        return
    _tell({"port": port, "pid": cluster.pid})
    signal.signal(signal.SIGTERM, lambda *_: _end(cluster))
    threading.Thread(target=_end_with_server, args=(cluster,), daemon=True).start()
    lock = os.open(folder / "use.lock", os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    cluster.stop()
    cluster.remove()
    for name in ("start.lock", "use.lock"):  # the one that is held last: who waits for it looks again
        (folder / name).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:
        pass  # somebody has begun anew in it
    os._exit(0)


class _Cluster:
    """The files and the process of one server."""

    def __init__(self, folder: Path, install: Path, account: list[int] | None, max_connections: int) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._bin = install / "bin"
        self._account = account
        self._max_connections = max_connections
        self._server: subprocess.Popen[bytes] | None = None
        self.is_stopped = False

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def make(self, password: str) -> None:
        self._data.mkdir(mode=0o700)
        secret = self._folder / "password"
        try:
            secret.touch(mode=0o600)
            secret.write_text(password)
            if self._account is not None:
                os.chown(self._data, *self._account)
                os.chown(secret, *self._account)
            command = [
                str(self._bin / "initdb"),
                "-D",
                str(self._data),
                "-U",
                "postgres",
                f"--pwfile={secret}",
            ]
            command += ["-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
            made = subprocess.run(
                command, check=False, capture_output=True, text=True, **self._surroundings()
            )
        finally:
            secret.unlink(missing_ok=True)
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stderr.strip() or made.stdout.strip()}")

    def start(self) -> int:
        said = ""
        for _ in range(_STARTS_AT_MOST):
            port = _free_port()
            said = self._started(port)
            if not said:
                return port
        raise RuntimeError(f"PostgreSQL did not start: {said}")

    def stop(self) -> None:
        """At once: nothing of it is needed any more."""
        self.is_stopped = True
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait()

    def wait(self) -> None:
        assert self._server is not None
        self._server.wait()

    def remove(self) -> None:
        self._remove_shared_memory()
        for name in ("data", "install"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        for name in ("server.json", "log"):
            (self._folder / name).unlink(missing_ok=True)

    def _remove_shared_memory(self) -> None:
        """What a server that was killed has left in the kernel: its number is in the seventh line."""
        try:
            segment = int((self._data / "postmaster.pid").read_text().splitlines()[6].split()[1])
            ctypes.CDLL(None).shmctl(segment, 0, None)  # IPC_RMID
        except (OSError, ValueError, IndexError, AttributeError):
            pass  # it has ended as it should, and has removed both itself

    def _started(self, port: int) -> str:
        """What it said if it did not start."""
        settings = {**_SETTINGS, "port": str(port), "max_connections": str(self._max_connections)}
        command = [str(self._bin / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        self._server = server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=_stop_with_keeper,  # noqa: PLW1509 (no thread runs yet)
            **self._surroundings(),
        )
        assert server.stderr is not None
        said: list[bytes] = []
        for line in server.stderr:
            said.append(line)
            if _READY in line:
                threading.Thread(target=self._write_log, args=(server.stderr,), daemon=True).start()
                return ""
        server.wait()
        return b"".join(said[-5:]).decode(errors="replace").strip() or "no reason given"

    def _write_log(self, lines: Any) -> None:
        written = 0
        log_file = (self._folder / "log").open("wb", buffering=0)
        with log_file as log, suppress(ValueError):  # whoever has stopped the server closes the pipe
            for line in lines:
                written += len(line)
                if written < _LOG_BYTES:
                    log.write(line)

    def _surroundings(self) -> dict[str, Any]:
        who: dict[str, Any] = {}
        if self._account is not None:
            who = {"user": self._account[0], "group": self._account[1], "extra_groups": []}
        return {"env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, "cwd": "/", **who}


def _end_with_server(cluster: _Cluster) -> None:
    """A server that ended by itself leaves no data: the next process that needs one starts anew."""
    cluster.wait()
    if not cluster.is_stopped:
        cluster.remove()
        os._exit(1)


def _end(cluster: _Cluster) -> None:
    cluster.stop()
    cluster.remove()
    os._exit(0)


def _stop_with_keeper() -> None:
    """In the child: whatever becomes of the keeper, the kernel sends the server its signal to stop."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGQUIT), 0, 0, 0)  # PR_SET_PDEATHSIG


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _tell(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
