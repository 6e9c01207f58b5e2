"""Puts the configurations of ``config/`` into the wheel; the rest of the build stands in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class WithConfigurations(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # a clone reads its own config/
            target = Path(self.build_lib, "llm_as_judge/config/defaults")
            shutil.copytree(ROOT / "config", target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("llm.yaml"))


setup(cmdclass={"build_py": WithConfigurations})
