import sys, torch, numpy as np
sys.path.insert(0,'/work/w/world/scripts/nano'); sys.path.insert(0,'/work/w/world')
import warm_start as W
from llm_as_judge.embedded.tasks.generate import KINDS, problems
from llm_as_judge.types import DOMAINS
from llm_as_judge.workflow.prompt import *
from transformers import AutoModelForCausalLM
from pathlib import Path
torch.set_num_threads(1); torch.set_grad_enabled(False)
folder=Path(sys.argv[1]); n=int(sys.argv[2]) if len(sys.argv)>2 else 40
m=AutoModelForCausalLM.from_pretrained(folder,dtype=torch.float32).eval()
tok=W.load_tokenizer(str(folder)); ids=lambda t:list(tok(t,add_special_tokens=False).input_ids)
head={d:ids(W.workflow(W.SHAPES['answer'],d).partition(' answer\n')[0]) for d in DOMAINS}
H={};P={}
for d in DOMAINS:
    for split,count in(("train",3*n),("heldout",3*n)):
        for p in problems(d,split,count):
            made=short_prompt(p.question,system=system_prompt(),guidance=DEFAULT_GUIDANCE)
            x=[W.SYSTEM_ID,*ids(made.system),W.USER_ID,*ids(made.user),W.ASSISTANT_ID,*head[d]]
            o=m.model(torch.tensor([x])).last_hidden_state[0,-1]
            H.setdefault((split,p.question.dataset),[]).append(o)
            P.setdefault(p.question.dataset,[]).append(torch.softmax(m.lm_head(o),-1)[[ids(' '+s)[0] for s in ('direct','answer','program','code')]])
H={k:torch.stack(v) for k,v in H.items()}
for d in DOMAINS:
    ks=KINDS[d]
    X=torch.cat([H["train",k] for k in ks]); y=torch.arange(3).repeat_interleave(n)
    mu,sd=X.mean(0),X.std(0)+1e-3
    w=torch.zeros(X.shape[1]+1,3); 
    Xs=torch.cat([(X-mu)/sd,torch.ones(len(X),1)],1)
    for _ in range(800):
        g=torch.softmax(Xs@w,-1)-torch.eye(3)[y]; w-=0.05*(Xs.T@g/len(X)+1e-2*w)
    Xt=torch.cat([torch.cat([(H["heldout",k]-mu)/sd for k in ks]),torch.ones(3*n,1)],1)
    pred=(Xt@w).argmax(-1); print(d,'probe',(pred==y).float().mean().item(),[(pred[i*n:(i+1)*n]==i).float().mean().item() for i in range(3)])
ks=[k for d in DOMAINS for k in KINDS[d]]
U={k:torch.nn.functional.normalize(H["train",k],dim=-1) for k in ks}
print('mean cosine within/between'); 
for a in ks: print(f'{a:8}',' '.join(f'{(U[a]@U[b].T).mean().item():.2f}' for b in ks), ' p(draft)',[round(x,2) for x in torch.stack(P[a]).mean(0).tolist()])
