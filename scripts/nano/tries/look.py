import sys; sys.path.insert(0,'/work/w/world/scripts/nano')
import skills, torch; torch.set_num_threads(1)
from pathlib import Path
from llm_as_judge.embedded.engine import Engine, Request
from nano_tokenizer import chat_ids
from tokenizers import Tokenizer
F=Path(sys.argv[1]); n=int(sys.argv[2])
tok=Tokenizer.from_file(str(F/'tokenizer.json')); e=Engine(F)
for skill,members in skills.cases(n).items():
    qs=[Request(chat_ids(tok,p),160) for p,_ in members]; e.generate(qs)
    out=[tok.decode(q.output).strip() for q in qs]; ok=[c(o) for (_,c),o in zip(members,out)]
    print('##',skill,sum(ok),'/',len(ok))
    if any(w in skill for w in sys.argv[3:]):
        shown=0
        for (p,c),o,k in zip(members,out,ok):
            if not k and shown<3: shown+=1; print('   P:',p[-260:].replace('\n',' | ')); print('   O:',o.replace('\n',' | '))
