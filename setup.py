"""Puts the configurations of ``config/`` into the wheel, and nothing that git ignores into wheel and source archive.

The rest of the build stands in pyproject.toml.
"""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent


def ignored(files: Iterable[str]) -> set[str]:
    """Those of ``files`` that git ignores; none outside a clone, where MANIFEST.in alone decides."""
    if not (ROOT / ".git").exists():
        return set()
    command = ["git", "check-ignore", "-z", "--stdin"]
    done = subprocess.run(command, cwd=ROOT, input="\0".join(files), capture_output=True, text=True, check=False)
    return {name for name in done.stdout.split("\0") if name and ".egg-info" not in name}


class WithConfigurations(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:  # a clone reads its own config/
            return
        packed = Path(self.build_lib)
        for name in ignored([str(file.relative_to(packed)) for file in packed.rglob("*") if file.is_file()]):
            (packed / name).unlink(missing_ok=True)
        files = [*(ROOT / "config").glob("*.*"), *(ROOT / "config/operator_descriptions").iterdir()]
        names = [file.relative_to(ROOT).as_posix() for file in files if file.suffix in (".yaml", ".example", ".md")]
        for name in {*names} - {"config/llm.yaml"} - ignored(names):
            target = packed / "llm_as_judge/config/defaults" / Path(name).relative_to("config")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        shutil.copytree(
            ROOT / "examples/own_verdict", packed / "llm_as_judge/config/defaults/own_verdict", dirs_exist_ok=True
        )


class WithoutIgnored(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, sorted({*files} - ignored(files)))


setup(cmdclass={"build_py": WithConfigurations, "sdist": WithoutIgnored})
