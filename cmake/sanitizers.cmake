# CMakePresets.json keeps detect_stack_use_after_return off: GCC before 14 puts locals that need 64 bytes of alignment, as those of
# AVX-512 kernels do, anywhere in the stack that it makes up for it (its bug 110027), and they fault.
if(SPILLWAY_SANITIZE_ADDRESS)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(SPILLWAY_SANITIZE_THREAD)
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()
