#!/bin/sh
# Makes the nano executors and policies anew: sh scripts/pretrain.sh PYTHON [options of scripts/nano/pretrain.py]
# An interrupted run resumes from its checkpoint. On two cores with bfloat16 instructions it takes an hour and a half.
set -eu
python=$1
shift
# glibc otherwise returns freed memory to the system after every tensor, which takes most of the time.
export MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_TOP_PAD_=268435456
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
weights=llm_as_judge/embedded/weights
"$python" scripts/nano/pretrain.py --workers 2 "$@"
"$python" scripts/nano/pretrain.py --export "$weights/executor"
"$python" scripts/nano/warm_start.py --out "$weights/policy"
# The world with two executors: config/two_executors.yaml.
small=checkpoints/nano-small
"$python" scripts/nano/pretrain.py --out "$small" --size small --tokens 16e6
"$python" scripts/nano/pretrain.py --out "$small" --size small --export "$weights/small"
rm "$weights"/small/tokenizer* "$weights/small/chat_template.jinja"  # those of the executor
"$python" scripts/nano/warm_start.py --init "$weights/policy" --config config/two_executors.yaml --out "$weights/policy_two"
