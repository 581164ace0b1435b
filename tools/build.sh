# Sourced by the scripts beside it: set-up and build, the same for all of them. Not a command of its own.

# What a script asks tools/setup for besides.
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

# One compiler process a core, and at least 1.5 GiB of memory for each.
jobs_that_fit() {
  local cores by_memory
  cores=$(nproc)
  by_memory=$(awk '/^MemAvailable:/ {print int($2 / 1572864)}' /proc/meminfo)
  (( by_memory < cores )) && cores=$by_memory
  (( cores > 0 )) && echo "$cores" || echo 1
}
