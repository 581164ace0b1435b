#include "tests/simt/fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

// Saves the registers that a function keeps by the calling convention of x86-64, and goes on where the other stack left off.
extern "C" void spillway_simt_switch(void** from, void* to);
// A fiber's stack goes on here for the first time: calls r12 with rbx.
extern "C" void spillway_simt_begin();
asm(R"(
.text
.globl spillway_simt_switch
.type spillway_simt_switch,@function
spillway_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size spillway_simt_switch,.-spillway_simt_switch
.globl spillway_simt_begin
.type spillway_simt_begin,@function
spillway_simt_begin:
  movq %rbx, %rdi
  call *%r12
  ud2
.size spillway_simt_begin,.-spillway_simt_begin
)");

namespace spillway::simt {
namespace {

// Kernels of attention keep some kilobytes in registers, which are here on the stack.
constexpr std::size_t kStackBytes = 128 << 10, kGuardBytes = 4096;

void release(std::byte* stack) { ::munmap(stack, kStackBytes); }

std::byte* make_stack() {
  void* stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED || ::mprotect(stack, kGuardBytes, PROT_NONE) != 0) throw std::bad_alloc();
  return static_cast<std::byte*>(stack);
}

}  // namespace

struct Fiber::Sanitizer {
#if defined(__SANITIZE_ADDRESS__)
  void* fake_of_fiber = nullptr;
  void* fake_of_caller = nullptr;
  const void* caller_bottom = nullptr;
  std::size_t caller_bytes = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  void* fiber = nullptr;
  void* caller = nullptr;
#endif
};

Fiber::Fiber() : stack_(make_stack(), &release), sanitizer_(std::make_unique<Sanitizer>()) {
#if defined(__SANITIZE_THREAD__)
  sanitizer_->fiber = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(sanitizer_->fiber);
#endif
}

void Fiber::start(void (*body)(void*), void* argument) {
  body_ = body, argument_ = argument, ended_ = false;
  // The stack is as spillway_simt_switch would have left it: six registers from r15 to rbp, and the return address.
  auto** frame = reinterpret_cast<void**>(stack_.get() + kStackBytes - 64) - 7;
  std::fill_n(frame, 6, nullptr);
  frame[3] = reinterpret_cast<void*>(&enter);  // r12
  frame[4] = this;                             // rbx
  frame[6] = reinterpret_cast<void*>(&spillway_simt_begin);
  mine_ = frame;
}

void Fiber::enter(Fiber* fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &fiber->sanitizer_->caller_bottom, &fiber->sanitizer_->caller_bytes);
#endif
  fiber->body_(fiber->argument_);
  fiber->ended_ = true;
  fiber->pause();
  __builtin_trap();
}

bool Fiber::resume() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&sanitizer_->fake_of_caller, stack_.get(), kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  sanitizer_->caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(sanitizer_->fiber, 0);
#endif
  spillway_simt_switch(&caller_, mine_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(sanitizer_->fake_of_caller, nullptr, nullptr);
#endif
  return !ended_;
}

void Fiber::pause() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&sanitizer_->fake_of_fiber, sanitizer_->caller_bottom, sanitizer_->caller_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(sanitizer_->caller, 0);
#endif
  spillway_simt_switch(&mine_, caller_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(sanitizer_->fake_of_fiber, &sanitizer_->caller_bottom, &sanitizer_->caller_bytes);
#endif
}

}  // namespace spillway::simt
