# Shared by the scripts in this folder; sourced, not run. Leaves the shell in the repository root.
set -euo pipefail

script=$(basename "$0")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
python=build/venv/bin/python
model=build/models/SmolLM2-135M-Instruct.Q4_1.gguf
jobs=$(nproc)

# say WORDS...: progress, on stderr so that a script's output stays its output.
say() { printf '%s\n' "$*" >&2; }

# die WORDS...: one line that says what to do.
die() {
  printf '%s: %s\n' "$script" "$*" >&2
  exit 1
}

# build PRESET TARGET...: configures when needed and builds. KVERN_UNITY=1: for a build from scratch.
build() {
  # Another clone's objects serve as well.
  export CCACHE_BASEDIR=$root
  local preset=$1
  shift
  if [[ ! -f build/$preset/build.ninja || CMakePresets.json -nt build/$preset/build.ninja ]]; then
    cmake --preset "$preset" ${KVERN_UNITY:+-DKVERN_UNITY=ON} >&2
  fi
  ninja -C "build/$preset" -j "$jobs" "$@" >&2
}
