"""Each extension of CONTRIBUTING.md ("Adding one") takes at most two files.

All of them are made here in one copy of the package, and used in a process of its own.
"""

import shutil
import sys
from pathlib import Path

from helpers.cli import SINGLE_CALL
from helpers.processes import ROOT, program
from helpers.tables import tables

EXTENSIONS = tables(__file__)
USE = EXTENSIONS.pop("before each use")


def test_each_extension_takes_at_most_two_files_and_works(here: Path) -> None:
    package = here / "llm_as_judge"
    ignored = shutil.ignore_patterns("__pycache__", "weights")
    shutil.copytree(ROOT / "llm_as_judge", package, ignore=ignored)
    (package / "embedded/weights").symlink_to(ROOT / "llm_as_judge/embedded/weights")
    shutil.copytree(ROOT / "config", here / "config")
    for name, extension in EXTENSIONS.items():
        added, edits = extension.get("added", {}), extension["edits"]
        assert len({*added, *edits}) <= 2, name
        for file, text in added.items():
            assert not (package / file).exists(), file
            (package / file).write_text(text, encoding="utf-8")
        for file, changes in edits.items():
            text = (package / file).read_text(encoding="utf-8")
            for old, new in changes:
                assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
                text = text.replace(old, new)
            (package / file).write_text(text, encoding="utf-8")
    Path("w.py").write_text(SINGLE_CALL.replace("operator.Custom", "operator.Translate"))
    riddles = (f'{{"riddle": "What has {n} keys but opens no door?", "solution": "a piano"}}\n' for n in range(12))
    Path("riddles.jsonl").write_text("".join(riddles))
    uses = {name: USE + extension["use"] for name, extension in EXTENSIONS.items()}
    all_uses = f"for name, use in {uses}.items(): exec(compile(use, name, 'exec'), {{}})"
    done = program(sys.executable, "-c", all_uses, PYTHONPATH=here)
    assert done.returncode == 0, done.stderr
