# Sets SPILLWAY_HAVE_CUDA: there is a toolkit, and the device runtime is compiled. Kernels and their chips: devices.cmake.
set(SPILLWAY_HAVE_CUDA OFF)
if(NOT SPILLWAY_CUDA STREQUAL "OFF")
  # The toolkit that tools/cuda_toolkit fetched comes before the system's, which was too old for it, and after one that is named.
  set(fetched ${CMAKE_SOURCE_DIR}/build/cuda)
  if(EXISTS ${fetched}/bin/nvcc AND NOT DEFINED CUDAToolkit_ROOT AND NOT DEFINED ENV{CUDAToolkit_ROOT})
    if(NOT "${CUDAToolkit_NVCC_EXECUTABLE}" STREQUAL "${fetched}/bin/nvcc")  # another was found before this one was fetched
      get_cmake_property(kept CACHE_VARIABLES)
      list(FILTER kept INCLUDE REGEX "^CUDA(Toolkit)?_")
      foreach(variable ${kept})
        unset(${variable} CACHE)
      endforeach()
    endif()
    set(CUDAToolkit_ROOT ${fetched})
    list(APPEND CMAKE_BUILD_RPATH ${fetched}/lib)  # of what is looked for when a program runs: cuBLASLt
  endif()
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    set(SPILLWAY_HAVE_CUDA ON)
  elseif(SPILLWAY_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SPILLWAY_CUDA=ON but no CUDA toolkit was found; set CUDAToolkit_ROOT or build with -DSPILLWAY_CUDA=OFF")
  endif()
endif()
message(STATUS "CUDA device runtime: ${SPILLWAY_HAVE_CUDA}")
