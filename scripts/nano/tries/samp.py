import sys; exec(open('/work/nano/probe.py').read().split('H={};P={}')[0].replace("n=int(sys.argv[2]) if len(sys.argv)>2 else 40","n=0"))
from collections import Counter
from llm_as_judge.workflow.shapes import name_of
import difflib
c=Counter()
for d in DOMAINS:
    for p in problems(d,"train",4):
        made=short_prompt(p.question,system=system_prompt(),guidance=DEFAULT_GUIDANCE)
        x=[W.SYSTEM_ID,*ids(made.system),W.USER_ID,*ids(made.user),W.ASSISTANT_ID]
        o=m.generate(torch.tensor([x]*4),do_sample=True,temperature=1.0,top_k=0,max_new_tokens=230)
        for row in o:
            t=tok.decode(row[len(x):],skip_special_tokens=True); nm=name_of(t,d); c[bool(nm)]+=1
            if not nm and c[False]<5:
                line=[l for l in t.splitlines() if f'# {d}' in l or '# ' in l]
                print('----',d,line); 
                s=line[0].split(':')[-1].split() if line else []
                sh=[z for z in W.SHAPES.values() if [z.draft,z.ending]==s]
                if sh: print('\n'.join(difflib.unified_diff(W.workflow(sh[0],d).splitlines(),t.splitlines(),lineterm='',n=0)))
                else: print(t)
print(c)
