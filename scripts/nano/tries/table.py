"""table.py [count] [split]: accuracy and tokens of every shape on every kind."""
import asyncio, sys, json
from collections import defaultdict
from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.loading import load_config
from llm_as_judge.embedded.tasks.generate import KINDS, problems
from llm_as_judge.evaluation.baselines import measure, rows
from llm_as_judge.evaluation.metrics import mean
import torch; torch.set_num_threads(1)
ROOT="/work/w/world"
async def main():
    n=int(sys.argv[1]) if len(sys.argv)>1 else 20
    split=sys.argv[2] if len(sys.argv)>2 else "train"
    c=load_config(ROOT+"/config/embedded.yaml",[f"guidance={ROOT}/config/guidance.yaml","enhancer="+ROOT+"/config/operator_descriptions/nano.yaml",*sys.argv[3:]])
    ps=[p for d in KINDS for p in problems(d,split,3*n)]
    async with open_services(c, judging=False) as s:
        m=await measure(ps, s.official)
    kinds=[k for d in KINDS for k in KINDS[d]]
    print(f"{'':16}"+" ".join(f"{k:>11}" for k in kinds))
    for name,e in m.evaluations.items():
        by=defaultdict(list)
        for r in e.records: by[r.dataset].append(r)
        print(f"{name:16}"+" ".join(f"{100*mean([float(bool(r.correct)) for r in by[k]]):5.0f} {mean([float(r.executor_tokens) for r in by[k]]):5.0f}" for k in kinds), flush=True)
    for row in rows(m): print(row.name, round(100*row.overall.value,1), {d:round(100*e.value,1) for d,e in row.domains.items()}, round(row.tokens), dict(row.plan))
asyncio.run(main())
