"""Prompts of the operators: one set for any instruct model, one for the embedded executor.

``FULL`` states the reply's form once and has the problem last. ``SHORT`` is exactly what the nano executor was trained
on. The texts are in ``prompts.yaml``; names in braces are filled in by ``str.format``.
"""

from dataclasses import dataclass
from pathlib import Path

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.config.sources import plain_yaml


@dataclass(frozen=True, slots=True)
class Prompts:
    """Templates; the optional parts (those below ``revise``) are left out if there is nothing to fill in."""

    answer_generate: str
    custom_code_generate: str
    ensemble: str
    programmer: str
    test: str
    format: str
    review: str
    revise: str
    instruction: str  # from the workflow, for CustomCodeGenerate
    signature: str
    example: str  # one public test
    analysis: str  # from the workflow, for Programmer
    failure: str  # of the last program
    got: str  # value that a public test found


_TEXTS = plain_yaml(Path(__file__).with_name("prompts.yaml"))
FULL, SHORT = Prompts(**_TEXTS["full"]), Prompts(**_TEXTS["short"])


def prompts_of(executor: EndpointConfig) -> Prompts:
    return SHORT if executor.provider == "embedded" else FULL
