"""What the policy is told about a failed attempt: what a developer would see in a terminal.

Never the verdict, the hidden tests or the reference: only what lint, the run and the public tests say.
"""

from collections.abc import Iterable, Iterator

from llm_as_judge.answers.code import defining_block
from llm_as_judge.sandbox.public_test import RunCode, first_failure
from llm_as_judge.types import Execution, Outcome, Question

#: Findings, or operators' results, that are named.
_MOST = 4
#: Characters of one line.
_LONGEST = 300
_ENDS: dict[Outcome, str] = {
    "raised": "it raised",
    "timeout": "it took too long",
    "memory": "it used too much memory",
    "output_limit": "it printed or returned too much",
    "budget": "its budget of calls or tokens was used up",
}


async def feedback(execution: Execution, question: Question, run_code: RunCode) -> str:
    """Write the message for the policy about an attempt; empty if there is nothing to repair.

    An attempt that ran to an answer is only criticised for operators' results that could not be read, and for the
    first public test of a code problem that fails. Raises ``InfrastructureError`` if the sandbox fails.
    """
    failed: list[str] = []
    if execution.outcome == "finished" and question.entry_point and question.public_tests:
        source = defining_block(execution.answer or "", question.entry_point, question.text)
        if found := await first_failure(run_code, question, source):
            statement, result = found
            got = f"got {result.got}, expected {result.expected}" if result.expected else result.error
            failed = [f"the answer fails a public test: {statement}: {got}"]
    return message(execution, failed)


def message(execution: Execution, failed: Iterable[str] = ()) -> str:
    """Write the message about ``execution`` and ``failed`` tests; empty if there is nothing to say."""
    lines = [*_said(execution), *failed]
    if not lines:
        return ""
    listed = "\n".join(f"- {_short(line)}" for line in lines)
    return f"This workflow failed:\n{listed}\nWrite the whole workflow again without this fault."


def _said(execution: Execution) -> Iterator[str]:
    if execution.outcome == "invalid":
        fatal = [f"line {finding.line}: {finding.message}" for finding in execution.findings if finding.fatal]
        yield from fatal[:_MOST] or [execution.error]
    elif execution.outcome in _ENDS:
        yield f"{_ENDS[execution.outcome]}: {execution.error}"
    elif execution.outcome == "finished":
        unread = [call for call in execution.calls if call.result and not call.parse_ok]
        yield from (f"{call.name}: {call.error or 'its reply could not be read'}" for call in unread[:_MOST])


def _short(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
