"""The self-test: things a child should not be able to do, tried in one. Harmless where they succeed."""

PROBES_SOURCE = """
import os, signal, socket, threading

def probe(host_pid):
    def fork():
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def read_files():
        open("/etc/passwd").close()

    def write_files():
        path = f"/tmp/.sandbox-probe-{os.getpid()}"
        open(path, "w").close()
        os.unlink(path)

    def network():
        socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()

    def signal_host():
        os.kill(host_pid, 0)

    def host_environment():
        open(f"/proc/{host_pid}/environ", "rb").close()

    def own_environment():
        if not os.environ:
            raise OSError("empty")

    def state(attempt):
        try:
            attempt()
        except (OSError, RuntimeError):
            return "blocked"
        return "open"

    attempts = {
        "new processes": fork,
        "reading files": read_files,
        "writing files": write_files,
        "network": network,
        "signals to the host": signal_host,
        "host environment": host_environment,
        "inherited environment": own_environment,
    }
    return {name: state(attempt) for name, attempt in attempts.items()}
"""
