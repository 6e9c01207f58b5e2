#!/bin/sh
# Makes the nano executor and policy anew: sh scripts/pretrain.sh PYTHON [options of scripts/nano/pretrain.py]
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
