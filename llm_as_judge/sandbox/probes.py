"""The self-test: what a child must not be able to do, tried in one. Harmless where it succeeds."""

#: Defines ``probe(host_pid, host_file)``, which gives ``{attempt: "blocked" or "open"}``.
PROBES_SOURCE = """
import ctypes, os, signal, socket, threading

libc = ctypes.CDLL(None, use_errno=True)

def native(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)

def probe(host_pid, host_file):
    def fork():
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def programs():
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)

    def thread():
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()

    def read_files():
        opened = []
        for path in (host_file, "/etc/passwd", f"/proc/{os.getpid()}/maps"):
            try:
                opened.append(open(path, "rb").close())
            except OSError:
                pass
        if not opened:
            raise OSError("no file could be opened")

    def list_folders():
        os.listdir("/")

    def write_files():
        for folder in ("/tmp", "/dev/shm", "/var/tmp", "/"):
            path = os.path.join(folder, f".sandbox-probe-{os.getpid()}")
            try:
                open(path, "w").close()
            except OSError:
                continue
            os.unlink(path)
            return
        raise OSError("no folder could be written to")

    def tcp():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
            s.settimeout(1)
            try:
                s.connect(("127.0.0.1", 9))
            except ConnectionRefusedError:
                pass

    def udp():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"", ("127.0.0.1", 9))

    def local_sockets():
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).close()

    def signals():
        for pid in (os.getppid(), host_pid):
            try:
                return os.kill(pid, 0)
            except OSError:
                continue
        raise OSError("nobody could be signalled")

    def limits():
        os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)

    def tracing():
        native("ptrace", 16902, os.getppid(), 0, 0)

    def host_environment():
        open(f"/proc/{host_pid}/environ", "rb").close()

    def own_environment():
        if not os.environ:
            raise OSError("empty")

    def shared_memory():
        os.close(os.memfd_create("probe"))

    def namespaces():
        native("unshare", 0x10000000)

    def state(attempt):
        try:
            attempt()
        except (OSError, RuntimeError, AttributeError):
            return "blocked"
        return "open"

    attempts = {
        "new processes": fork,
        "new programs": programs,
        "threads": thread,
        "reading files": read_files,
        "listing folders": list_folders,
        "writing files": write_files,
        "TCP": tcp,
        "UDP": udp,
        "local sockets": local_sockets,
        "signals to others": signals,
        "priority of others": limits,
        "tracing others": tracing,
        "host environment": host_environment,
        "inherited environment": own_environment,
        "shared memory": shared_memory,
        "new namespaces": namespaces,
    }
    return {name: state(attempt) for name, attempt in attempts.items()}
"""
