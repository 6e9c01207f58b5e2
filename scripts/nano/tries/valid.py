"""valid.py FOLDER [count]: how often a policy's workflows are shapes, and which drafts and endings it writes by kind."""
import sys, difflib
from collections import Counter, defaultdict
from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.config.loading import load_config
from llm_as_judge.workflow.shapes import name_of, SHAPES, workflow
import torch; torch.set_num_threads(1)
ROOT="/work/w/world"
c=load_config(ROOT+"/config/embedded.yaml",[f"guidance={ROOT}/config/guidance.yaml", f"model.model_name={sys.argv[1]}","model.device=cpu","model.dtype=float32","training.response_max_length=300","generation.eval_temperature=1.0"])
a=load_author(c); n=int(sys.argv[2]) if len(sys.argv)>2 else 27
qs=[p.question for p in open_problems(c).sampler.sample(n)]
valid=Counter(); drafts=defaultdict(Counter); shown=0; first=Counter()
for q,group in zip(qs,a.write(qs,8)):
    for w in group:
        t=w.text if hasattr(w,'text') else w.completion
        nm=name_of(t,q.domain); valid[q.dataset,bool(nm)]+=1
        drafts[q.dataset][nm]+=1
        if not nm:
            best=min((workflow(s,q.domain) for s in SHAPES.values()), key=lambda s: len(list(difflib.unified_diff(s.splitlines(),t.splitlines(),lineterm='',n=0))))
            d=[l for l in difflib.unified_diff(best.splitlines(),t.splitlines(),lineterm='',n=0)][2:]
            for l in d:
                if l[0]=='+': first[l.strip()]+=1
            if shown<6: shown+=1; print('---',q.domain); print('\n'.join(d))
print({k:round(valid[k,True]/(valid[k,True]+valid[k,False]),3) for k in sorted({k for k,_ in valid})}, sum(v for (k,b),v in valid.items() if b)/sum(valid.values()))
for k,v in drafts.items(): print(k, v.most_common(16))
print(first.most_common(15))
