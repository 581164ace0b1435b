# spillway_precompile(<target> <first> <header>...): the standard headers that most files include, and those named, are parsed once,
# for the target <first>, and taken over from there by those that come after it: a sixth off a build from nothing. Each file includes
# what it uses all the same; the presets for debugging and sanitizers build without (CMAKE_DISABLE_PRECOMPILE_HEADERS) and hold that.
function(spillway_precompile target first)
  if(NOT target STREQUAL first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE <algorithm> <array> <cstdint> <filesystem> <fmt/core.h> <functional> <map> <memory>
                              <memory_resource> <mutex> <optional> <span> <string> <string_view> <utility> <variant> <vector> ${ARGN})
  endif()
  # GCC forgets that a precompiled header is the system's, and then warns of its own strings (its bug 105651) under these names too.
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds>
                                             $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow>)
  endif()
endfunction()
