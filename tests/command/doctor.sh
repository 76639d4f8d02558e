#!/usr/bin/env bash
# lockstep doctor names the GPUs that the driver has, and says whether LibTorch can use them. The driver is a stand-in.
# usage: doctor.sh LOCKSTEP FOLDER_OF_THE_DRIVER ON|OFF
# The last argument says whether LibTorch is linked with CUDA.
set -euo pipefail
lockstep=$1 driver=$2 has_cuda=$3
fail() { echo "doctor.sh: $*" >&2; exit 1; }

# gpus: the line about GPUs and the next one, which may be advice. The result of doctor depends on the machine, too.
gpus() { { env "$@" LD_LIBRARY_PATH="$driver" "$lockstep" doctor || true; } | grep -A1 -E '^(ok|slow|BAD) +GPUs '; }

two='NVIDIA A100,GPU-aa11,42949672960;NVIDIA A100,GPU-bb22,42949672960'
found=$(gpus -u CUDA_VISIBLE_DEVICES LOCKSTEP_FAKE_NVML="$two")
both="cuda:0 NVIDIA A100 (40.0 GiB), cuda:1 NVIDIA A100 (40.0 GiB)"
case $has_cuda:$found in
  OFF:slow*"$both, but training runs on the CPU"*"LibTorch is linked without CUDA"*) ;;
  ON:BAD*"$both, but LibTorch cannot use them: "*) ;;
  *) fail "expected two GPUs that LibTorch cannot use, got: $found" ;;
esac
found=$(gpus CUDA_VISIBLE_DEVICES=GPU-bb LOCKSTEP_FAKE_NVML="$two")
case $found in
  *"cuda:1"*) fail "expected one GPU, got: $found" ;;
  *"cuda:0 NVIDIA A100"*) ;;
  *) fail "expected the GPU that CUDA_VISIBLE_DEVICES names, got: $found" ;;
esac
found=$(gpus CUDA_VISIBLE_DEVICES= LOCKSTEP_FAKE_NVML="$two")
case $found in
  *"none, training runs on the CPU: CUDA_VISIBLE_DEVICES='' names none of the 2"*) ;;
  *) fail "expected the reason why there is none, got: $found" ;;
esac
echo "doctor.sh: all as expected"
