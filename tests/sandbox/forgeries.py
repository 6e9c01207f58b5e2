"""Wrong solutions of ``f(x) = x * x`` that try to be judged right (``forgeries.yaml``), for tests of either form.

``KNOWN`` were found to fool other checkers. ``ENDS_EARLY`` end before their tests do, or have nothing to test; they
pass in no process. ``OWN`` are against this sandbox's own ways.
"""

from pathlib import Path

import yaml

_TEXTS: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
KNOWN, ENDS_EARLY, OWN = (_TEXTS[name] for name in ("KNOWN", "ENDS_EARLY", "OWN"))
