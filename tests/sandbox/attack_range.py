"""Runs every attack in one mode and prints what succeeded: ``python attack_range.py MODE [WITHOUT] [generous]``.

It is also run as other users, with a Python that they can start. The output is one JSON object: attack -> breaches,
an empty list if it was blocked.
"""

import asyncio
import json
import os
import socket
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from attacks import LAYERED, LIMITED, PRELUDE, PROTOCOL

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.sandbox import limits
from llm_as_judge.sandbox.host import Sandbox

TIGHT = {"cpu_seconds": 1, "wall_seconds": 3, "memory_mb": 256}
GENEROUS = {"cpu_seconds": 60, "wall_seconds": 600, "memory_mb": 8000}


async def attack(config: SandboxConfig, without: int, names: list[str]) -> dict[str, list[str]]:
    """Attack -> breaches."""
    os.environ["SECRET_API_KEY"] = "CANARY-42"
    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="attack-") as place, socket.create_server(("127.0.0.1", 0)) as server:
        abstract = f"\0sandbox-test-{os.getpid()}"
        folder = Path(place)
        folder.chmod(0o755)
        listeners = {"UDP": (socket.AF_INET, ("127.0.0.1", server.getsockname()[1])),
                     "unix": (socket.AF_UNIX, f"{folder}/sock"), "abstract": (socket.AF_UNIX, abstract)}  # fmt: skip
        open_ = {}
        for name, (family, address) in listeners.items():
            open_[name] = socket.socket(family, socket.SOCK_DGRAM)
            open_[name].bind(address)
            open_[name].setblocking(False)
        (folder / "sock").chmod(0o777)
        given = {"host_pid": os.getpid(), "port": server.getsockname()[1], "folder": place, "abstract": abstract}
        header = "".join(f"{name} = {value!r}\n" for name, value in given.items()) + PRELUDE

        def prepare() -> list[str]:
            """Restore the files; returns what an attack had changed."""
            changed = []
            kept = {"secret": 0o644, "victim": 0o666, "sock": 0o777, "link": None}
            for entry in folder.iterdir():
                if entry.name not in kept:
                    changed.append(f"made {entry.name}")
                    entry.rmdir() if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            for name in ("secret", "victim"):
                path = folder / name
                if path.exists() and (path.read_text() != "SECRET" or path.stat().st_mtime < 10**9):
                    changed.append(f"changed {name}")
                path.write_text("SECRET")
                path.chmod(kept[name] or 0)
            if not (folder / "link").is_symlink():
                (folder / "link").symlink_to("/etc/passwd")
            for name, listener in open_.items():
                try:
                    while listener.recv(100):
                        changed.append(f"{name} got data")
                except BlockingIOError:
                    pass
            return changed

        async with Sandbox(config, without=without, max_code_runs=8) as sandbox:
            prepare()
            for name in names:
                if name in LAYERED:
                    run = await sandbox.run_code(f"{header}{LAYERED[name]}\nprint('DONE')")
                    found[name] = [line for line in run.stdout.splitlines() if line.startswith("BREACH")] + prepare()
                    # A filter may kill for a forbidden call; anything else that ends an attack early is our mistake.
                    if not run.stdout.endswith("DONE\n") and "signal 31" not in run.error:
                        found[name].append(f"was not tried to its end: {run.outcome} {run.error}")

            async def limited(name: str, source: str, harm: str) -> None:
                run = await sandbox.run_code(source)
                if run.outcome == "fault":
                    found[name] = [f"fault: {run.error}"]
                elif run.outcome == "finished" or "BREACH" in run.stdout:
                    found[name] = [harm]
                else:
                    found[name] = []

            await asyncio.gather(
                *(limited(name, LIMITED[name], "went over the limit") for name in names if name in LIMITED),
                *(limited(name, PROTOCOL[name], "finished") for name in names if name in PROTOCOL),
            )
            after = await sandbox.run_code("def f(): return 42", call="f")
            found["the next run"] = [] if after.value == 42 else [f"{after.outcome}: {after.error}"]
            found["the next run"] += prepare()
        for listener in open_.values():
            listener.close()
    return found


def main(mode: str, without: str = "0", kind: str = "tight", *names: str) -> None:
    chosen = list(names) or [*LAYERED, *LIMITED, *PROTOCOL]
    config = SandboxConfig.model_validate({**(GENEROUS if kind == "generous" else TIGHT), "mode": mode})
    if kind == "generous":
        limits.OUTPUT_BYTES, limits.OPEN_FILES = 10_000_000, 1000
    json.dump(asyncio.run(attack(config, int(without), chosen)), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
