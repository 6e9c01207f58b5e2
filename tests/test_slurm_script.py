"""Which commands scripts/slurm_train.sh starts on which nodes, with stand-ins for SLURM's commands."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAND_INS = {
    "scontrol": 'for node in $NODES; do echo "$node"; done',
    "curl": '[ -n "$FAILS" ] && exit 1; until [ -e "$CALLS.pid" ]; do sleep 0.05; done',
    "srun": 'gpus="$EXECUTOR_GPUS$CUDA_VISIBLE_DEVICES"\n'
    'stop="STOP=$TORCH_ELASTIC_SHUTDOWN_TIMEOUT"\n'
    'echo "GPUS=$gpus HOST=$HOST URL=$OPENAI_BASE_URL KEY=$VLLM_API_KEY PYTHON=$PYTHON $stop $*" >> "$CALLS"\n'
    'case "$*" in *launch_vllm*) [ -n "$FAILS" ] && exit 1; echo $$ > "$CALLS.pid"; exec sleep 100 ;; esac',
}  # fmt: skip


def submit(folder: Path, nodes: str, gpus: int, *options: str, **environment: str) -> tuple[list[str], str, int]:
    """Each call of srun, the errors, and the exit status."""
    for name, text in STAND_INS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    calls = folder / "calls"
    for old in (calls, folder / "calls.pid"):
        old.unlink(missing_ok=True)
    here = {
        "PATH": f"{folder}:{os.environ['PATH']}", "NODES": nodes, "CALLS": str(calls), "SLURM_GPUS_ON_NODE": str(gpus),
        "SLURM_JOB_NODELIST": "n[1-9]", "SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(folder), **environment,
    }  # fmt: skip
    done = subprocess.run(
        ["bash", ROOT / "scripts/slurm_train.sh", *options],
        env=here, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return calls.read_text().splitlines() if calls.exists() else [], done.stderr, done.returncode


def test_the_last_node_serves_the_executor_and_the_others_train(tmp_path: Path) -> None:
    (executor, training), errors, status = submit(tmp_path, "n1 n2 n3", 4, "--config", "c.yaml", "--resume")
    assert status == 0, errors
    assert "--nodelist=n3 scripts/launch_vllm.sh executor" in executor
    assert executor.startswith("GPUS=0,1,2,3 HOST=0.0.0.0 ")
    assert training.startswith("GPUS=0,1,2,3 ") and " URL=http://n3:8002/v1 " in training
    assert "--nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n1,n2 .venv/bin/python" in training
    assert "-m torch.distributed.run --nnodes 2 --nproc-per-node 4 " in training
    assert "--rdzv-endpoint n1:29500 -m llm_as_judge train " in training
    assert training.endswith(" --set generation.engine=vllm --config c.yaml --resume")
    keys = {call.partition("KEY=")[2].split()[0] for call in (executor, training)}
    assert len(keys) == 1 and len(keys.pop()) == 32, "one key, of this job alone"
    assert not Path(f"/proc/{(tmp_path / 'calls.pid').read_text().strip()}").exists(), "the executor ends with the job"
    header = (ROOT / "scripts/slurm_train.sh").read_text(encoding="utf-8")
    notice = int(header.partition("--signal=TERM@")[2].split()[0])
    assert 60 < int(training.partition("STOP=")[2].split()[0]) < notice, "a running step may end before the kill"


def test_a_single_node_gives_its_last_gpu_to_the_executor_and_vllm_its_own_environment(tmp_path: Path) -> None:
    own = tmp_path / ".venv-vllm/bin/python"
    own.parent.mkdir(parents=True)
    own.touch(mode=0o755)
    (executor, training), errors, status = submit(tmp_path, "n1", 4)
    assert status == 0, errors
    assert executor.startswith("GPUS=3 ") and training.startswith("GPUS=0,1,2 ")
    assert "--nnodes 1 --nproc-per-node 3 " in training and " URL=http://n1:8002/v1 " in training
    assert " PYTHON=.venv-vllm/bin/python " in executor
    assert " --set engine.python=.venv-vllm/bin/python --set generation.engine=vllm" in training


def test_a_job_that_cannot_start_says_why(tmp_path: Path) -> None:
    _, errors, status = submit(tmp_path, "n1", 1)
    assert status and "one GPU: the executor fills it; ask for two, or give EXECUTOR_URL" in errors
    calls, errors, status = submit(tmp_path, "n1", 2, FAILS="1")
    assert status and "does not answer at http://n1:8002/v1; see logs/slurm_7_executor.log" in errors
    assert not any("torch.distributed.run" in call for call in calls)
