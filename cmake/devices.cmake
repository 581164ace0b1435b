# Which GPUs a program has is which of these it is linked with, behind the folder offload/ (offload/device.h):
#   spillway_device_absent   none
#   spillway_device_cuda     those of the machine, where a toolkit is found; compiled by nvcc for SPILLWAY_CUDA_CHIPS
#   spillway_device_simt     the emulation of one (tests/simt/), by the host's compiler: made by tests/CMakeLists.txt
# spillway_device is the one of the command.
add_library(spillway_device_absent STATIC ${CMAKE_SOURCE_DIR}/offload/device_absent.cpp)
target_link_libraries(spillway_device_absent PUBLIC spillway_offload)
add_library(spillway_device INTERFACE)

# Compute capabilities as 80, 90 (which is 90a), 120; `native` is what nvidia-smi says of this machine.
set(default_chips native)
if(DEFINED ENV{SPILLWAY_CUDA_CHIPS})
  set(default_chips $ENV{SPILLWAY_CUDA_CHIPS})
endif()
set(SPILLWAY_CUDA_CHIPS ${default_chips} CACHE STRING "Chips that CUDA's kernels are compiled for: native, or a list such as 80;86;89;90;120")
set(spillway_chips ${SPILLWAY_CUDA_CHIPS})
if(SPILLWAY_HAVE_CUDA AND "${SPILLWAY_CUDA_CHIPS}" STREQUAL "native")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE failed)
  set(spillway_chips "")
  if(NOT failed)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" spillway_chips "${found}")
    string(REPLACE "." "" spillway_chips "${spillway_chips}")
    list(REMOVE_DUPLICATES spillway_chips)
  endif()
endif()
if(NOT SPILLWAY_HAVE_CUDA OR NOT spillway_chips)
  message(STATUS "GPUs: none for this program (no CUDA toolkit, or no GPU to compile for: set SPILLWAY_CUDA_CHIPS)")
  target_link_libraries(spillway_device INTERFACE spillway_device_absent)
  return()
endif()
message(STATUS "GPUs: kernels for ${spillway_chips}, by ${CUDAToolkit_NVCC_EXECUTABLE}")

set(codes "")
set(words "")
foreach(chip ${spillway_chips})
  if(chip LESS 80)
    message(FATAL_ERROR "SPILLWAY_CUDA_CHIPS: found ${chip}, allowed: 80 and later (bf16 products, asynchronous copies)")
  endif()
  string(APPEND words " sm_${chip}")
  # Products of warpgroups are in Hopper's own dialect alone.
  if(chip EQUAL 80)
    list(APPEND codes -gencode=arch=compute_80,code=[sm_80,compute_80]) # which drivers translate for chips to come
  elseif(chip EQUAL 90)
    list(APPEND codes -gencode=arch=compute_90a,code=sm_90a)
  else()
    list(APPEND codes -gencode=arch=compute_${chip},code=sm_${chip})
  endif()
endforeach()
string(STRIP "${words}" words)

set(objects "")
file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/models/cuda/*.cu ${CMAKE_SOURCE_DIR}/offload/cuda/*.cu)
foreach(source ${kernels})
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
    COMMAND ${CCACHE} ${CUDAToolkit_NVCC_EXECUTABLE} -std=c++20 -O3 ${codes} --expt-relaxed-constexpr --extended-lambda
            -I${CMAKE_SOURCE_DIR} -DFMT_SHARED -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1 -DNDEBUG
            "-DSPILLWAY_CUDA_CHIPS=\"${words}\"" -Xcompiler=-ffp-contract=off,-fPIC -diag-suppress=20012,20014,20015
            -MD -MF ${object}.d -x cu -c ${source} -o ${object}
    DEPENDS ${source}
    DEPFILE ${object}.d
    COMMENT "CUDA kernels of ${name}.cu for ${words}"
    COMMAND_EXPAND_LISTS VERBATIM)
  list(APPEND objects ${object})
endforeach()
add_library(spillway_device_cuda STATIC ${objects})
set_target_properties(spillway_device_cuda PROPERTIES LINKER_LANGUAGE CXX)
target_link_libraries(spillway_device_cuda PUBLIC spillway_offload CUDA::cudart_static)
target_link_libraries(spillway_device INTERFACE spillway_device_cuda)
