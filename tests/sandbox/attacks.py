"""Attacks on the sandbox (``attacks.yaml``). Each is harmless if it succeeds, and then prints BREACH.

``attempt(name, f)`` of ``PRELUDE`` reports a breach when ``f`` returns. The names ``host_pid``, ``port``, ``folder``
(with the files ``secret`` and ``victim``, a socket ``sock`` and a link ``link`` to a file outside) and ``abstract`` are
defined. ``LAYERED`` are stopped by a layer. ``LIMITED`` are stopped by a limit: they end without a result, and with
larger limits they end well. ``PROTOCOL`` are attacks on the conversation with the host: they must neither finish nor
disturb the next run.
"""

from pathlib import Path
from typing import Any

import yaml

_TEXTS: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
PRELUDE: str = _TEXTS["PRELUDE"]
LAYERED, LIMITED, PROTOCOL = (dict[str, str](_TEXTS[name]) for name in ("LAYERED", "LIMITED", "PROTOCOL"))
