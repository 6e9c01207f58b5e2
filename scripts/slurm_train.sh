#!/usr/bin/env bash
#SBATCH --job-name=llm-as-judge
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --output=logs/slurm_%j.log
# Training on a SLURM cluster, executor and policy server with it:
#   mkdir -p logs && sbatch scripts/slurm_train.sh --config config/training.yaml [further options of `train`]
#   sbatch --nodes=1 --gpus-per-node=2 scripts/slurm_train.sh --config config/training.yaml --resume
# The last node serves GPT-OSS-120B, executor and judge, with all its GPUs; the others train, a process each GPU. A single
# node gives its last GPU to the executor. The policy's own vLLM server shares the first GPU with rank 0. SLURM says
# SIGTERM two minutes before the time is up: the run saves, and --resume goes on. The repository's folder, weights and
# data must be seen by all nodes under the same path.
# EXECUTOR_URL=http://HOST:8002/v1   an executor that is served elsewhere; all nodes train
# START_S=1800                       seconds that the executor may take to load
# PYTHON=.venv/bin/python            the interpreter, as nodes see it
# VLLM_PYTHON=.venv-vllm/bin/python  that of vLLM; by default this one where it is there, else PYTHON
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # started by sh
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}"

python=${PYTHON:-.venv/bin/python}
engine=()
if [[ -z ${VLLM_PYTHON:-} && -x .venv-vllm/bin/python ]]; then
    VLLM_PYTHON=.venv-vllm/bin/python
fi
if [[ -n ${VLLM_PYTHON:-} ]]; then
    engine=(--set "engine.python=$VLLM_PYTHON")
fi
# torchrun would kill the trainers after 30 s, amid the step that they finish before they save.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-110}
gpus=${SLURM_GPUS_ON_NODE:?is not set: run this by sbatch, with --gpus-per-node}
mapfile -t nodes < <(scontrol show hostnames "${SLURM_JOB_NODELIST:?is not set: run this by sbatch}")
last=${nodes[-1]}
mkdir -p logs
trainers=("${nodes[@]}")
processes=$gpus

if [[ -z ${EXECUTOR_URL:-} ]]; then
    if ((${#nodes[@]} > 1)); then
        trainers=("${nodes[@]::${#nodes[@]}-1}")
        executor_gpus=$(seq -s, 0 $((gpus - 1)))
    elif ((gpus > 1)); then
        processes=$((gpus - 1))
        executor_gpus=$((gpus - 1))
    else
        printf 'one GPU: the executor fills it; ask for two, or give EXECUTOR_URL\n' >&2
        exit 2
    fi
    port=${PORT:-8002}
    # The node is on a network: who asks needs the job's own key.
    OPENAI_API_KEY=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    export OPENAI_API_KEY VLLM_API_KEY=$OPENAI_API_KEY
    EXECUTOR_URL=http://$last:$port/v1
    HOST=0.0.0.0 PORT=$port PYTHON=${VLLM_PYTHON:-$python} EXECUTOR_GPUS=$executor_gpus \
        srun --overlap --nodes=1 --ntasks=1 --nodelist="$last" scripts/launch_vllm.sh executor \
        >"logs/slurm_${SLURM_JOB_ID:-0}_executor.log" 2>&1 &
    executor=$!
    trap 'kill "$executor" 2>/dev/null || true; wait "$executor" || true' EXIT
    printf 'waiting for the executor at %s\n' "$EXECUTOR_URL"
    until curl -fsS -o /dev/null "http://$last:$port/health" 2>/dev/null; do
        if ! kill -0 "$executor" 2>/dev/null || ((SECONDS > ${START_S:-1800})); then
            printf 'error: the executor does not answer at %s; see logs/slurm_%s_executor.log\n' \
                "$EXECUTOR_URL" "${SLURM_JOB_ID:-0}" >&2
            exit 1
        fi
        sleep 2
    done
fi
export OPENAI_BASE_URL=$EXECUTOR_URL

# The first GPUs are the trainers'; torchrun is one task a node and starts a process each GPU.
CUDA_VISIBLE_DEVICES=$(seq -s, 0 $((processes - 1)))
export CUDA_VISIBLE_DEVICES
nodelist=$(IFS=,; printf '%s' "${trainers[*]}")
srun --overlap --nodes="${#trainers[@]}" --ntasks="${#trainers[@]}" --ntasks-per-node=1 --nodelist="$nodelist" \
    "$python" -m torch.distributed.run \
    --nnodes "${#trainers[@]}" --nproc-per-node "$processes" \
    --rdzv-id "${SLURM_JOB_ID:-0}" --rdzv-backend c10d --rdzv-endpoint "${trainers[0]}:${RDZV_PORT:-29500}" \
    -m llm_as_judge train "${engine[@]}" --set generation.engine=vllm "$@"
