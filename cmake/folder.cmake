# spillway_folder(<name> <dependency>...): the library spillway_<name> of all *.cpp under the current folder.
# Backends are chosen here and nowhere else: of the twins x_cuda.cpp and x_no_cuda.cpp one is compiled.
function(spillway_folder name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(SPILLWAY_HAVE_CUDA)
    list(FILTER sources EXCLUDE REGEX "_no_cuda\\.cpp$")
  else()
    set(without_cuda ${sources})
    list(FILTER without_cuda INCLUDE REGEX "_no_cuda\\.cpp$")
    list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$")
    list(APPEND sources ${without_cuda})
  endif()
  list(FILTER sources EXCLUDE REGEX "_module\\.cpp$")  # a shared library of its own, opened when it is asked for
  list(FILTER sources EXCLUDE REGEX "_absent\\.cpp$")  # a library of its own (cmake/devices.cmake)
  add_library(spillway_${name} STATIC ${sources})
  target_link_libraries(spillway_${name} PUBLIC ${ARGN})
  spillway_precompile(spillway_${name} spillway_memory)
  if(SPILLWAY_HAVE_CUDA AND sources MATCHES "_cuda\\.cpp")
    # Static, so that the program starts on machines that have no CUDA.
    target_link_libraries(spillway_${name} PRIVATE CUDA::cudart_static)
  endif()
endfunction()
