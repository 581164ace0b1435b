# Of compilers that this was tried with, a warning is an error. What later ones newly warn of stops nobody's build.
set(tried_GNU 15)  # before these
set(tried_Clang 20)
set(as_error)
if(DEFINED tried_${CMAKE_CXX_COMPILER_ID} AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS tried_${CMAKE_CXX_COMPILER_ID})
  set(as_error -Werror)
endif()
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra> $<$<COMPILE_LANGUAGE:CXX>:-Wshadow>
                    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>
                    $<$<COMPILE_LANGUAGE:CXX>:${as_error}>)
# Designated initializers leave out what its default says; that is what they are for.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
# GCC 12 takes some string concatenations for overlapping copies (its bug 105651), and its own AVX-512 headers for uses of
# uninitialized vectors (its bug 105593).
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict> $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
# Losses must not depend on the compiler's taste for fusing a*b+c outside the kernels that ask for it.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
# GCC 13 suspects every reference that a function returns when it was given a temporary, std::string_view and all.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-dangling-reference>)
endif()
