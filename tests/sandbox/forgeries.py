"""Wrong solutions of ``f(x) = x * x`` that try to be judged right. Written for tests of either form."""

FRAMES = """
import json, os, struct
def frame(message):
    body = json.dumps(message).encode()
    return struct.pack("!I", len(body)) + body
"""

#: The forgeries that were found to fool other checkers.
KNOWN = {
    "always equal": "class E:\n    def __eq__(s, o): return True\ndef f(x): return E()",
    "an int that is always equal": "class E(int):\n    def __eq__(s, o): return True\ndef f(x): return E(0)",
    "a truthy comparison": """
class B:
    def __bool__(s): return True
class E:
    def __eq__(s, o): return B()
    def __getattr__(s, n): return s
    def __call__(s, *a, **k): return s
def f(x): return E()
""",
    "the expected value read from the caller": """
import sys, dis
def f(x):
    caller = sys._getframe(1)
    for i in dis.get_instructions(caller.f_code):
        if i.offset > caller.f_lasti and i.opname == "LOAD_CONST":
            return i.argval
""",
    "a trace that jumps over the asserts": """
import sys
class E:
    def __eq__(s, o): return True
def f(x):
    caller = sys._getframe(1)
    sys.settrace(lambda *a: None)
    def jump(frame, event, argument):
        if event == "line":
            frame.f_lineno = max(line for _, _, line in frame.f_code.co_lines() if line)
        return jump
    caller.f_trace = jump
    return E()
""",
    "a list of results in a caller": """
import sys
frame = sys._getframe()
while frame:
    for value in list(frame.f_locals.values()):
        if isinstance(value, list): value.append("passed")
    frame = frame.f_back
def f(x): return 0
""",
    "the nonce from the frames": FRAMES + """
import sys
def f(x):
    frame_, nonce = sys._getframe(), None
    while frame_:
        for value in list(frame_.f_locals.values()):
            if isinstance(value, dict) and "nonce" in value: nonce = value["nonce"]
        frame_ = frame_.f_back
    os.write(3, frame({"end": "finished", "nonce": nonce}))
    os._exit(0)
""",
    "a forged end": FRAMES + 'os.write(3, frame({"end": "finished", "ready": True}) * 50)\ndef f(x): return 0',
    "a patched send": """
import sys
for name, module in list(sys.modules.items()):
    if name.endswith("frames"):
        send = module.send
        module.send = lambda sock, message: send(sock, {"end": "finished", "ready": True, "passed": True})
def f(x): return 0
""",
    "patched builtins": """
import builtins
class A(Exception): pass
builtins.AssertionError = A
builtins.isinstance = lambda *a: True
builtins.exec = lambda *a: None
builtins.compile = lambda *a, **k: None
def f(x): return 0
""",
    "a report on standard output": "print('OK')\nprint('3 passed in 0.01s')\ndef f(x): return 0",
    "an error that says passed": "class X(Exception):\n    def __str__(s): return 'passed'\ndef f(x): raise X",
    "an error named eval": FRAMES + """
os.write(3, frame({"ready": True}))
payload = "__import__('os')._exit(0)"
os.write(3, frame({"error": ["eval", "exec", "SystemExit"], "message": payload}) * 3)
import time; time.sleep(2)
""",
}  # fmt: skip

#: Solutions that end before their tests do, or have nothing to test; they pass in no process.
ENDS_EARLY = {
    "exit at once": "import sys\nsys.exit(0)",
    "_exit at once": "import os\nos._exit(0)",
    "SystemExit in the call": "def f(x): raise SystemExit(0)",
    "exit at the end": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): return 0",
    "SystemExit, exit at the end": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): raise SystemExit",
    "_exit in the call": "import os\ndef f(x): os._exit(0)",
    "a signal to itself": "import os\ndef f(x): os.kill(os.getpid(), 9)",
    "a forged end in the call": FRAMES + 'def f(x): os.write(3, frame({"end": "finished"}))',
    "its own check": "def check(candidate): pass\ndef f(x): return 0",
    "nothing": "pass",
    "another function": "def g(x): return x * x",
}

#: Against this sandbox's own ways.
OWN = {
    "an error that ends the tests": FRAMES + """
os.write(3, frame({"ready": True}))
os.write(3, frame({"error": ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "BaseException"], "message": "0"}) * 3)
import time; time.sleep(2)
""",
    "asking to be judged weakly": FRAMES + """
def f(x):
    os.write(3, frame({"end": "unsplittable"}))
    os._exit(0)
""",
    "a value that cannot be sent": "def f(x): return lambda *a: True",
    "a tag that is none": FRAMES + """
os.write(3, frame({"ready": True}))
for tag in ("object", "__import__", "type", "opaque", "NotImplemented"):
    os.write(3, frame({"value": {"t": tag, "v": "object"}}))
import time; time.sleep(2)
""",
    "NotImplemented": "def f(x): return NotImplemented",
    "a class whose instances are all equal": """
class M(type):
    def __eq__(s, o): return True
    def __hash__(s): return 0
class E(metaclass=M): pass
def f(x): return E
""",
    "a reply before it was asked for, and a late end": FRAMES + """
os.write(3, frame({"ready": True}) + frame({"value": 4}) + frame({"end": "finished"}))
import time; time.sleep(2)
""",
    "patched comparisons of the standard library": """
import math, operator
math.isclose = operator.eq = lambda *a, **k: True
def f(x): return 0
""",
    "a number that is not equal to itself": "def f(x): return float('nan')",
}  # fmt: skip
