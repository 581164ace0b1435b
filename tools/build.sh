# Sourced by the scripts beside it: their common set-up and build. Not a command of its own.

# Further flags that a script passes to tools/setup.
setup_flags=()

# build <preset> [target...]: installs what is missing, configures and builds into build/<preset>.
build() {
  local preset=$1
  shift
  tools/setup "${setup_flags[@]}"
  cmake --preset "$preset" --log-level=WARNING
  local targets=()
  (( $# == 0 )) || targets=(--target "$@")
  cmake --build "build/$preset" --parallel "$(jobs_that_fit)" "${targets[@]}"
}

# One compiler process for each core, each with at least 1.5 GiB of memory.
jobs_that_fit() {
  local cores by_memory
  cores=$(nproc)
  by_memory=$(awk '/^MemAvailable:/ {print int($2 / 1572864)}' /proc/meminfo)
  (( by_memory < cores )) && cores=$by_memory
  (( cores > 0 )) && echo "$cores" || echo 1
}
