"""How busy a training run keeps its executor: seconds a step against what device and executor need at least.

The real loop (nano policy, sandbox, client) on a server that takes log-normal time and serves so many calls at once;
the learning rate is next to nothing, so that every lookahead runs the same workflows. The bound of a step is the larger
of the executor's seconds of service divided by its places, and the device's seconds of work, both as measured in the
steps after the pipeline has filled. Beside it: TRL's own asynchronous rollout loop on the same endpoint, what a rollout
costs the host's thread, and ten thousand rollouts in flight. A few minutes; one thread a process.

    python benchmarks/orchestration.py [--json] [--only short|long|tail|repairs|peer|flight] [--steps 8] [--flight N]
"""

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from endpoint import endpoint, most_at_once, served_s
from measure import Claim, command_line, report

from llm_as_judge.assembly.policy import load_author, make_learner
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import BufferConfig, Config
from llm_as_judge.events import StepReport
from llm_as_judge.policy.sampling import PLAIN
from llm_as_judge.rl.buffer import ExperienceBuffer
from llm_as_judge.rl.pipeline import TrainerParts
from llm_as_judge.rl.ranks import ALONE
from llm_as_judge.rl.report import device_seconds
from llm_as_judge.rl.rollout import Collector
from llm_as_judge.rl.trainer import Trainer
from llm_as_judge.types import Completion
from llm_as_judge.workflow.shapes import SHAPES, workflow

ROOT = Path(__file__).resolve().parents[1]
BATCH, GROUP = 4, 6


@dataclass(frozen=True, slots=True)
class Setting:
    """An executor: seconds of a call, median, and how heavy the tail is; calls at once."""

    name: str
    median: float
    sigma: float
    slots: int
    steps: int
    repairs: int = 0


#: In the first two the executor's places are the limit; the third has room for all, and waiting is the limit.
SETTINGS = {
    "short": Setting("0.2 s, heavy tail, 6 places", 0.2, 1.0, 6, 5),
    "long": Setting("1 s, 16 places", 1.0, 0.5, 16, 4),
    "tail": Setting("1 s, 128 places", 1.0, 0.5, 128, 4),
    "repairs": Setting("0.2 s, heavy tail, 6 places, one repair", 0.2, 1.0, 6, 5, repairs=1),
}


def settings(address: str, slots: int, folder: Path, **more: object) -> Config:
    given = {
        "executor.provider": "openai",
        "executor.base_url": f"{address}/v1",
        "executor.model": "sleeper",
        "executor.concurrency": slots,
        "executor.temperature": 0.3,
        "judge.mode": "rules",
        "training.rollout_batch_size": BATCH,
        "training.num_return_sequences_in_group": GROUP,
        "training.learning_rate": 1e-9,
        "training.save_every": 0,
        "training.rollout_concurrency": 256,
        "workflow.guidance": ROOT / "config/guidance.yaml",
        "workflow.enhancer": "null",
        "output.output_dir": folder / "checkpoints",
        "output.log_dir": folder / "logs",
        **more,
    }
    return load_config(ROOT / "config/embedded.yaml", [f"{name}={value}" for name, value in given.items()])


@dataclass(frozen=True, slots=True)
class Run:
    """Means over the steps after the pipeline had filled; seconds."""

    step_s: float
    service_s: float  # of the executor, a step, divided by its places
    device_s: float
    host_ms: float  # CPU of the event loop's thread a rollout
    calls: float  # a rollout

    @property
    def bound_s(self) -> float:
        return max(self.service_s, self.device_s)


async def steps_of(address: str, setting: Setting, lookahead: int, folder: Path) -> Run:
    """Run the loop itself. The first ``lookahead`` + 1 steps fill the pipeline and do not count."""
    steps = setting.steps + lookahead + 1
    more = {"training.lookahead": lookahead, "training.max_steps": steps + lookahead + 1}
    more["workflow.repairs"] = setting.repairs
    config = settings(address, setting.slots, folder, **more)
    author = load_author(config)
    marks: list[tuple[float, float, float, int]] = []
    async with open_services(config) as services:

        def step_done(report: StepReport) -> None:
            cpu, load = time.thread_time(), services.clients["executor"].load()
            marks.append((time.monotonic(), device_seconds(report.seconds), cpu, load.requests))

        parts = TrainerParts(
            policy=author.policy,
            learner=make_learner(author, ALONE),
            engine=author.engine,
            sampling=PLAIN,
            sampler=open_problems(config).sampler,
            prompt=author.prompt,
            buffer=ExperienceBuffer(BufferConfig(top_k=0), author.policy.embed),
            rollout=services.training,
            log=lambda kind, /, **fields: None,
            checkpoint_dir=folder / "steps",
            on_step=step_done,
        )
        await Trainer(parts, config.training).train(steps)
    (begin, _, cpu, calls), (end, _, cpu_end, calls_end) = marks[lookahead], marks[-1]
    n = len(marks) - 1 - lookahead
    return Run(
        (end - begin) / n,
        served_s(address, begin, end) / n / setting.slots,
        sum(device for _, device, _, _ in marks[lookahead + 1 :]) / n,
        1000 * (cpu_end - cpu) / n / (BATCH * GROUP),
        (calls_end - calls) / n / (BATCH * GROUP),
    )


def measured(setting: Setting, folder: Path, lookaheads: tuple[int, ...]) -> dict[int, Run]:
    runs = {}
    for lookahead in lookaheads:
        with endpoint(setting.median, setting.sigma, setting.slots) as address:
            runs[lookahead] = asyncio.run(steps_of(address, setting, lookahead, folder))
    return runs


def rows_of(setting: Setting, runs: dict[int, Run]) -> dict[str, str]:
    return {
        f"{setting.name}, lookahead {lookahead}": (
            f"{run.step_s:5.2f} s a step, bound {run.bound_s:.2f} s (executor {run.service_s:.2f}, device "
            f"{run.device_s:.2f}), {run.calls:.1f} calls and {run.host_ms:.2f} ms of the host's CPU a rollout"
        )
        for lookahead, run in runs.items()
    }


def peer_seconds(setting: Setting, folder: Path) -> float | None:
    """Measure the seconds in which TRL's loop scores as many rollouts as a step has; None without TRL."""
    try:
        import trl  # noqa: F401
    except ImportError:
        return None
    config = settings("http://127.0.0.1:9", setting.slots, folder)
    author, problems = load_author(config), open_problems(config).sampler.sample(8)
    prompts = [author.policy.encode(author.prompt(problem.question)) for problem in problems]
    groups = author.engine.generate(prompts, GROUP, sampling=PLAIN, max_new_tokens=config.training.response_max_length)
    file = folder / "completions.json"
    sampled = [c for group in groups for c in group]
    file.write_text(json.dumps([{"token_ids": c.token_ids, "logprobs": c.logprobs} for c in sampled]))
    with endpoint(setting.median, setting.sigma, setting.slots, file) as address:
        peer = [sys.executable, str(ROOT / "benchmarks/orchestration_peer.py"), address, str(setting.slots)]
        done = subprocess.run([*peer, str(setting.steps * BATCH)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"TRL's loop failed:\n{done.stderr[-3000:]}")
    return BATCH * float(json.loads(done.stdout.splitlines()[-1])["seconds_a_group"])


@dataclass(frozen=True, slots=True)
class Flight:
    """Many rollouts at once; memory in MB."""

    rollouts: int
    most_at_once: int  # calls under way at the server
    seconds: float
    host_ms: float  # CPU of the host's process a rollout
    host_mb: float  # that its memory grew by
    sandbox_mb: float  # of all workflow processes together, as the machine's free memory fell
    outcomes: Counter[str]


async def fly(address: str, rollouts: int, live: int, folder: Path) -> Flight:
    more = {"training.rollout_concurrency": live, "executor.timeout_s": 600}
    config = settings(address, live, folder, **more)
    problems = open_problems(config).sampler.sample(rollouts)
    async with open_services(config) as services:
        before, free, cpu, begun = memory_mb(), free_mb(), time.process_time(), time.monotonic()
        collector = Collector(problems, services.training)
        least = free
        for place, problem in enumerate(problems):
            text = workflow(SHAPES["answer"], problem.question.domain)
            collector.start(place, 0, Completion(text, (), (), (), "stop", verbatim=True))
        waiting = asyncio.create_task(collector.groups())
        while not waiting.done():
            await asyncio.wait([waiting], timeout=0.5)
            least = min(least, free_mb())
        groups = waiting.result()
        seconds, spent, grown = time.monotonic() - begun, time.process_time() - cpu, memory_mb() - before
    outcomes = Counter(r.execution.outcome for g in groups for r in g.rollouts)
    most = await asyncio.to_thread(most_at_once, address)
    return Flight(rollouts, most, seconds, 1000 * spent / rollouts, grown, free - least, outcomes)


def memory_mb() -> float:
    """Return the most that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def free_mb() -> float:
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) / 1024


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--only", choices=(*SETTINGS, "peer", "flight"))
    parser.add_argument("--steps", type=int, help="steps that count, of each lookahead")
    parser.add_argument("--flight", type=int, default=10_000)
    parser.add_argument("--live", type=int, default=1000, help="workflow processes at once, 2.4 MB each")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    rows: dict[str, str] = {}
    claims: dict[str, Claim] = {}

    def wanted(part: str) -> bool:
        return given.only in (None, part)

    def sized(setting: Setting) -> Setting:
        return setting if given.steps is None else replace(setting, steps=given.steps)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in filter(wanted, ("short", "long")):
            setting = sized(SETTINGS[part])
            runs = measured(setting, folder, (0, 2))
            rows |= rows_of(setting, runs)
            over = runs[2].step_s / runs[2].bound_s
            claims[f"{setting.name}: step over bound, lookahead 2"] = Claim(over, 1.15, at_most=True)
            claims[f"{setting.name}: host CPU, ms a rollout"] = Claim(runs[2].host_ms, 3.0, at_most=True)
        if wanted("repairs"):
            setting = sized(SETTINGS["repairs"])
            runs = measured(setting, folder, (0, 1, 2))
            rows |= rows_of(setting, runs)
            for lookahead in (1, 2):
                over = runs[lookahead].step_s / runs[lookahead].bound_s
                claims[f"{setting.name}: step over bound, lookahead {lookahead}"] = Claim(over, 1.25, at_most=True)
        if wanted("tail"):
            setting = sized(SETTINGS["tail"])
            runs = measured(setting, folder, (0, 1, 2))
            rows |= rows_of(setting, runs)
            for lookahead, goal in ((1, 1.8), (2, 2.2)):
                faster = runs[0].step_s / runs[lookahead].step_s
                claims[f"{setting.name}: times faster, lookahead {lookahead}"] = Claim(faster, goal)
        setting = sized(SETTINGS["tail"])
        if wanted("peer") and (theirs := peer_seconds(setting, folder)) is not None:
            ours = measured(setting, folder, (2,))[2].step_s
            rows["TRL's rollout loop, generation free"] = (
                f"{theirs:.2f} s for {BATCH} x {GROUP} rollouts; a step of ours {ours:.2f} s"
            )
            claims["times TRL's rollout loop"] = Claim(theirs / ours, 2.0)
        if wanted("flight"):
            with endpoint(1.0, 0.7, 20_000) as address:
                flight = asyncio.run(fly(address, given.flight, given.live, folder))
            rows[f"{given.flight} rollouts in flight"] = (
                f"{flight.seconds:.0f} s, {flight.most_at_once} calls at once; the host's process grew by "
                f"{flight.host_mb:.0f} MB, {given.live} workflow processes took {flight.sandbox_mb:.0f} MB; "
                f"{flight.host_ms:.2f} ms CPU a rollout; {dict(flight.outcomes)}"
            )
            finished = flight.outcomes["finished"] / given.flight
            claims[f"{given.flight} rollouts in flight: share finished"] = Claim(finished, 1.0)
    report("training steps on an executor that takes time", rows, claims, given)


if __name__ == "__main__":
    main()
