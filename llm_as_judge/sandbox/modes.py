"""Choice of the sandbox's mode by an active self-test: the strictest mode in which no attempt to break out succeeds.

A mode counts by what its self-test found, not by what was configured. If no mode works, the sandbox refuses to start
and says what would help; ``unsafe`` is used only when asked for by name.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import ConfigError, SandboxFault
from llm_as_judge.sandbox.results import Confinement
from llm_as_judge.sandbox.zygote_client import GUEST, ZygoteClient

_PROBE_SECONDS = 20.0

#: Modes, strictest first, and what each needs.
_NEEDS = {
    "full": "install bubblewrap and allow it user namespaces, or use sandbox.mode=auto",
    "standard": "it needs Linux 5.13 or later with Landlock and seccomp; use sandbox.mode=auto, or no-open",
    "no-open": "it needs Linux with seccomp on x86_64 or aarch64",
}


async def open_zygote(mode: str, without: int = 0) -> tuple[ZygoteClient, Confinement]:
    """Start a zygote in ``mode``, or for ``auto`` in the strictest mode that works, and report what confines it.

    ``without`` are bits of layers to leave out, for tests of the layers; what that opens is reported, not refused.
    Raises ``ConfigError`` with the cure if no mode works.
    """
    if mode == "unsafe":
        free = await ZygoteClient.start(mode, without)
        return free, await _tried(free, mode, {})
    refused: dict[str, str] = {}
    for candidate in _NEEDS if mode == "auto" else (mode,):
        zygote: ZygoteClient | None = None
        try:
            zygote = await ZygoteClient.start(candidate, without)
            found = await _tried(zygote, candidate, refused)
            if found.holds or without:
                return zygote, found
            refused[candidate] = f"its self-test was able to do: {', '.join(found.open)}"
        except SandboxFault as fault:
            refused[candidate] = str(fault)
        if zygote is not None:
            await zygote.aclose()
    reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    if mode == "auto":
        raise ConfigError(
            f"no isolation on this machine ({sys.platform}): {reasons}. Run on Linux with seccomp, or in a virtual "
            "machine or container of your own with sandbox.mode=unsafe, which isolates nothing and marks every result"
        )
    raise ConfigError(f"sandbox.mode={mode} does not hold on this machine: {reasons}. Cure: {_NEEDS[mode]}")


async def _tried(zygote: ZygoteClient, mode: str, refused: Mapping[str, str]) -> Confinement:
    """Run the probes in a child; raises ``SandboxFault`` if they do not finish."""
    source = (GUEST / "probes.py").read_text(encoding="utf-8")
    arguments = [os.getpid(), str(Path(__file__).resolve()), zygote.descriptors]
    child = await zygote.spawn(SandboxConfig())
    try:
        await child.send({"kind": "code", "source": source, "call": "probe", "args": arguments})
        end = await asyncio.wait_for(child.receive(), _PROBE_SECONDS) or {}
    except asyncio.TimeoutError:
        raise SandboxFault("its self-test did not end") from None
    finally:
        await child.aclose()
    match end:
        case {"value": dict(probes)}:
            return Confinement(mode, zygote.layers, probes, dict(refused))
    raise SandboxFault(f"its self-test failed: {end.get('error') or 'the child could not be set up'}")
