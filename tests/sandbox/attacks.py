"""Attacks on the sandbox. Each is harmless if it succeeds, and then prints BREACH.

``attempt(name, f)`` reports a breach when ``f`` returns. The names ``host_pid``, ``port``, ``folder`` (with the files
``secret`` and ``victim``, a socket ``sock`` and a link ``link`` to a file outside) and ``abstract`` are defined.
"""

PRELUDE = """
import ctypes, mmap, os, resource, signal, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
x86 = os.uname().machine == "x86_64"

def attempt(name, f):
    try:
        value = f()
    except BaseException as error:
        print("blocked", name, type(error).__name__, str(error)[:60])
    else:
        print("BREACH", name, repr(value)[:60])

def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")

def native(name, *arguments):
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), "refused")

def absent(value):
    if not value:
        raise LookupError("nothing there")
    return value
"""

#: Attacks that a layer stops.
LAYERED = {
    "new processes": """
attempt("fork", lambda: os.fork() or os._exit(0))
attempt("exec", lambda: __import__("subprocess").run(["/bin/true"]))
attempt("spawn", lambda: os.posix_spawn("/bin/true", ["true"], {}))
attempt("shell", lambda: absent(os.system("true") == 0))
""",
    "thread bomb": """
threading.stack_size(1 << 16)
def threads():
    for started in range(64):
        threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
attempt("64 threads", threads)
import _thread
attempt("one", lambda: _thread.start_new_thread(int, ()))
""",
    "memory outside the limit": """
attempt("memfd", lambda: os.memfd_create("x"))
attempt("/dev/shm", lambda: os.unlink((open("/dev/shm/sandbox-test", "wb"), "/dev/shm/sandbox-test")[1]))
def sysv():
    segment = libc.shmget(0, 1 << 20, 0o1600)
    if segment < 0:
        raise OSError(ctypes.get_errno(), "refused")
    libc.shmctl(segment, 0, None)
attempt("System V", sysv)
""",
    "reading files": """
for path in ("/etc/passwd", "/etc/hostname", f"{folder}/secret", f"{folder}/link"):
    attempt(path, lambda: open(path, "rb").read(10))
for path in ("/", "/home", "/etc", folder):
    attempt(f"listing {path}", lambda: os.listdir(path))
""",
    "environment and own /proc": """
attempt("environment", lambda: absent(dict(os.environ)))
attempt("getenv", lambda: absent(libc.getenv(b"SECRET_API_KEY")))
for path in ("environ", "maps", "mem", "exe", "root/etc/passwd"):
    attempt(path, lambda: open(f"/proc/self/{path}", "rb").close())
""",
    "changing files": """
victim = f"{folder}/victim"
attempt("create", lambda: open(f"{folder}/new", "w"))
attempt("append", lambda: open(victim, "a").write("x"))
attempt("truncate", lambda: os.truncate(victim, 0))
attempt("chmod", lambda: os.chmod(victim, 0o666))
attempt("utime", lambda: os.utime(victim, (0, 0)))
attempt("rename", lambda: os.rename(victim, f"{folder}/renamed"))
attempt("unlink", lambda: os.unlink(victim))
attempt("mkdir", lambda: os.mkdir(f"{folder}/made"))
attempt("xattr", lambda: os.setxattr(victim, "user.x", b"1"))
""",
    "network and sockets": """
attempt("TCP", lambda: socket.create_connection(("127.0.0.1", port), 1))
attempt("UDP", lambda: socket.socket(2, 2).sendto(b"breach", ("127.0.0.1", port)))
attempt("listen", lambda: socket.create_server(("127.0.0.1", 0)))
attempt("unix path", lambda: socket.socket(1, 2).sendto(b"breach", f"{folder}/sock"))
attempt("abstract", lambda: socket.socket(1, 2).sendto(b"breach", abstract))
attempt("datagram pair", lambda: socket.socketpair(1, 2)[0].sendto(b"breach", f"{folder}/sock"))
attempt("netlink", lambda: socket.socket(16, 3, 0))
attempt("raw", lambda: socket.socket(2, 3, 1))
""",
    "signals to others": """
attempt("parent", lambda: os.kill(os.getppid(), 0))
attempt("host", lambda: os.kill(host_pid, 0))
attempt("everybody", lambda: os.kill(-1, 0))
attempt("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(host_pid), 0))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19))
attempt("tgkill", lambda: call(234 if x86 else 131, host_pid, host_pid, 0))
attempt("prlimit", lambda: resource.prlimit(host_pid, resource.RLIMIT_NOFILE))
attempt("queue", lambda: call(129 if x86 else 138, host_pid, 0, ctypes.create_string_buffer(128)))
""",
    "tracing others": """
for name, pid in (("parent", os.getppid()), ("host", host_pid)):
    attempt(f"seize {name}", lambda: native("ptrace", 0x4206, pid, 0, 0))
    b = ctypes.create_string_buffer(8)
    vec = struct.pack("QQ", ctypes.addressof(b), 8)
    attempt(f"read {name}", lambda: absent(libc.process_vm_readv(pid, vec, 1, vec, 1, 0) > 0))
attempt("kcmp", lambda: call(312 if x86 else 272, os.getpid(), host_pid, 1, 0, 0))
""",
    "/proc of others": """
for pid in (os.getppid(), host_pid, 1):
    for name in ("environ", "cmdline", "maps"):
        attempt(f"{pid} {name}", lambda: open(f"/proc/{pid}/{name}", "rb").read(10))
    attempt(f"{pid} fd", lambda: os.listdir(f"/proc/{pid}/fd"))
    attempt(f"{pid} root", lambda: os.listdir(f"/proc/{pid}/root/etc"))
""",
    "daemon": """
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.3)
        os._exit(0)
attempt("double fork", daemon)
""",
    "links": """
attempt("symlink", lambda: os.symlink("/etc/passwd", f"{folder}/made-link"))
attempt("hard link", lambda: os.link(f"{folder}/victim", f"{folder}/hard"))
attempt("planted link", lambda: open(f"{folder}/link").read(10))
""",
    "filling the disk": """
def fill(place):
    path = f"{place}/sandbox-test-fill"
    with open(path, "wb") as file:
        file.write(b"x" * 1000)
    os.unlink(path)
for place in (".", "/tmp", "/var/tmp", "/dev/shm", folder):
    attempt(place, lambda: fill(place))
""",
    "kernel interfaces": """
calls = {
    "io_uring": (425, 425, 8, ctypes.create_string_buffer(120)),
    "bpf": (321, 280, 0, ctypes.create_string_buffer(64), 64),
    "user namespace": (272, 97, 0x10000000), "keyctl": (250, 219, 0, -3, 0), "userfaultfd": (323, 282, 1),
    "perf": (298, 241, struct.pack("IIQ", 1, 112, 0) + bytes(96), 0, -1, -1, 0), "personality": (135, 92, 0x0040000),
    "inotify": (294, 26, 0), "memory policy": (239, 236, None, None, 0, None, 0), "syslog": (103, 116, 10, None, 0),
}
for name, (number, arm, *arguments) in calls.items():
    attempt(name, lambda: call(number if x86 else arm, *arguments))
""",
    "signal by asynchronous input": """
import fcntl
ours, theirs = socket.socketpair()
attempt("owner", lambda: fcntl.fcntl(ours, fcntl.F_SETOWN, os.getppid()))
attempt("signal", lambda: fcntl.fcntl(ours, 10, signal.SIGCONT))
""",
    "directory handles": """
def walk():
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    return os.read(os.open("etc/passwd", os.O_RDONLY, dir_fd=root), 10)
attempt("openat from the root", walk)
def by_path():
    root = os.open("/", os.O_PATH)
    return os.read(os.open("etc/passwd", os.O_RDONLY, dir_fd=root), 10)
attempt("O_PATH", by_path)
def climb():
    lib = os.open(os.path.dirname(os.__file__), os.O_RDONLY)
    return os.read(os.open("../" * 20 + "etc/passwd", os.O_RDONLY, dir_fd=lib), 10)
attempt("climbing out of the library", climb)
""",
    "own limits": """
attempt("more memory", lambda: resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2))
attempt("more time", lambda: resource.setrlimit(resource.RLIMIT_CPU, (resource.getrlimit(resource.RLIMIT_CPU)[1],) * 2))
attempt("affinity", lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)))
attempt("priority", lambda: os.nice(1))
""",
    "regaining privileges": """
attempt("dumpable", lambda: native("prctl", 4, 1, 0, 0, 0))
attempt("parent's death signal", lambda: native("prctl", 1, 0, 0, 0, 0))
attempt("new session", lambda: call(157 if not x86 else 109, 0, 0))
attempt("setuid", lambda: os.setresuid(-1, os.getuid(), -1))
attempt("groups", lambda: os.setgid(os.getgid()))
""",
    "another architecture's calls": """
def machine_code():
    if not x86:
        raise OSError("x86 only")
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\\x53\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\x5b\\xc3")  # int 0x80, 32-bit getpid
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    return absent(function() > 0)
attempt("int 0x80", machine_code)
""",
    "file handles and mounts": """
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
attempt("name_to_handle_at", lambda: call(303 if x86 else 264, -100, b"/", handle, ctypes.create_string_buffer(8), 0))
attempt("chdir", lambda: os.chdir("/etc"))
attempt("statfs", lambda: os.statvfs("/etc"))
attempt("hostname", lambda: native("sethostname", os.uname().nodename.encode(), len(os.uname().nodename)))
""",
    "locks and leases on what may be read": """
import fcntl
def lock():
    with open(os.__file__) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
attempt("lock", lock)
def lease():
    with open(os.__file__) as file:
        fcntl.fcntl(file, fcntl.F_NOTIFY, 1)
attempt("record lock", lambda: fcntl.lockf(open(os.__file__), fcntl.LOCK_SH))
""",
}

#: Attacks that a limit stops; they end without a result, and with larger limits they end well.
LIMITED = {
    "memory bomb": "x = [bytearray(1 << 20) for _ in range(400)]\nprint('BREACH 400 MB')",
    "memory by mmap": "import mmap\nx = mmap.mmap(-1, 700 << 20)\nprint('BREACH 700 MB')",
    "infinite loop": """
import time
end = time.process_time() + 2.5
while time.process_time() < end: pass
print('BREACH')
""",
    "loop ignoring signals": """
import signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
end = time.process_time() + 2.5
while True:
    try:
        while time.process_time() < end: pass
        break
    except BaseException: pass
print('BREACH')
""",
    "one long operation in C": "import re\nre.match(r'(a+)+$', 'a' * 28 + 'b')\nprint('BREACH')",
    "sleeping": "import time\ntime.sleep(5)\nprint('BREACH')",
    "huge output": "for _ in range(200): print('x' * 10_000)\nprint('BREACH')",
    "file descriptors": "import os\nx = [os.pipe() for _ in range(250)]\nprint('BREACH')",
}

#: Attacks on the conversation with the host: they must neither finish nor disturb the next run.
PROTOCOL = {
    "closed descriptors": "import os; os.closerange(0, 1000)",
    "C stack": "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor i in range(10**6): x = [x]\nrepr(x)",
    "pickle": "import socket, struct, pickle, os\nclass E:\n    def __reduce__(self): return (os.system, ('true',))\n"
    "d = pickle.dumps(E())\nsocket.socket(fileno=3).sendall(struct.pack('>I', len(d)) + d)\nimport time; time.sleep(9)",
    "standard input": "import sys\nassert not sys.stdin.read()\ninput()",
    "descriptors to the host": "import os, socket, array\ns = socket.socket(fileno=3)\nr, w = os.pipe()\n"
    "s.sendmsg([b'\\0\\0\\0\\2[]'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [r] * 20))])\n"
    "import time; time.sleep(9)",
    "a thousand small frames": "import os, struct\nfor _ in range(1000): os.write(3, struct.pack('>I', 2) + b'{}')\n",
}
