"""bandit.py FOLDER LR TARGETS STEPS BETA [key=value...]: GRPO with a table of rewards."""
import asyncio, sys, tempfile, random, time
from collections import defaultdict
from pathlib import Path
from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.config.loading import load_config
from llm_as_judge.events import RolloutEvent
from llm_as_judge.rewards.total import RewardFunction
from llm_as_judge.rl.parts import TrainerParts
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.rl.trainer import Trainer
from llm_as_judge.types import Exchange, Execution, OperatorCall, Verdict
from llm_as_judge.workflow.shapes import name_of
ROOT = Path("/work/w/world")
ORDER = "sums chains swaps lookup hops numbers clear open long".split()
T = {
 "direct":  [.97,.02,.40,.97,.50,.03,.90,.48,.05],
 "answer":  [.97,.35,.95,.98,.97,.25,0,0,0],
 "program": [.97,.97,.05,0,0,.95,0,0,0],
 "code":    [0,0,0,0,0,0,.95,.48,.06],
}
def rate(name, kind):
    draft, _, end = name.partition("_")
    p = T[draft][ORDER.index(kind)]
    code = kind in ("clear","open","long")
    if end == "vote": return min(1, p*1.03) if not code else p*.9
    if end == "review": return {"long": .9 if draft in("code","direct") else 0}.get(kind, p*.95)
    if end == "test": return ({"open": .87}.get(kind, p) if p else 0) if code else 0
    return p
def cost(name):
    draft, _, end = name.partition("_")
    c = {"direct":60,"answer":110,"program":105,"code":95}[draft]
    return c*3+120 if end=="vote" else c+160 if end=="review" else c+30 if end=="test" else c
class Runner:
    def __init__(self): self.r = random.Random(0)
    async def run(self, source, question, seed=None):
        name = name_of(source, question.domain)
        if not name: return Execution("invalid", None)
        right = self.r.random() < rate(name, question.dataset)
        c = cost(name)
        call = OperatorCall(name, {}, {}, (Exchange("", "", "stop", int(c*.7), int(c*.3), 0.0, 0.0),))
        return Execution("finished", "yes" if right else "no", (call,))
class Judge:
    async def verdict(self, problem, answer, cut_off=False): return Verdict(answer == "yes", "rules")
async def main():
    folder, lr, targets, steps, beta, *more = sys.argv[1:]
    config = load_config(ROOT/"config/embedded.yaml", [f"guidance={ROOT}/config/guidance.yaml", f"model.model_name={folder}", f"model.lora_target_modules={targets}", "model.device=cpu","model.dtype=float32", f"learning_rate={lr}", f"beta={beta}", "save_every=0", *more])
    author = load_author(config)
    seen = defaultdict(list)
    t0 = time.time()
    def log(event):
        if isinstance(event, RolloutEvent):
            name = name_of(event.text, event.domain)
            kind = event.dataset
            seen[event.step].append((kind, name, rate(name, kind) if name else 0, cost(name) if name else 0))
            s = event.step
            if len(seen[s]) == 64 and s % 10 == 0:
                last = [x for k in range(s-9, s+1) for x in seen[k]]
                by = defaultdict(list)
                for k, n, p, c in last: by[k].append((n, p))
                out = []
                for k in ORDER:
                    names = [n for n,_ in by[k]]
                    if not names: continue
                    top = max(set(names), key=names.count)
                    out.append(f"{k}:{top or 'INVALID'} {names.count(top)/len(names):.2f} p={sum(p for _,p in by[k])/len(names):.2f}")
                print(s, f"{time.time()-t0:.0f}s mean {sum(x[2] for x in last)/len(last):.3f} tokens {sum(x[3] for x in last)/len(last):.0f}", " | ".join(out), flush=True)
    parts = TrainerParts(policy=author.policy, engine=author.engine, sampler=open_problems(config).sampler, build_prompt=author.prompt,
        rollout=RolloutParts(Runner(), Judge(), RewardFunction(config.reward)), log=log, checkpoint_dir=Path(tempfile.mkdtemp()))
    await Trainer(parts, config).train(int(steps))
asyncio.run(main())
