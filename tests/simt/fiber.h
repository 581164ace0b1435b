// Runs a function on a stack of its own until it lets its caller go on: a lane of an emulated warp.
// Not here: which fiber runs when (block.h). Switching makes no system call: a kernel's test switches some million times.
#pragma once

#include <cstddef>
#include <memory>

namespace spillway::simt {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // From here on resume() runs `body`, which must not throw. Objects that an earlier body left on the stack are forgotten; their
  // destructors do not run.
  void start(void (*body)(void*), void* argument);
  // Runs the body until it pauses or ends; true while there is more to come.
  bool resume();
  // Called from the body: returns to the caller of resume().
  void pause();

 private:
  static void enter(Fiber* fiber);

  struct Sanitizer;
  std::unique_ptr<std::byte, void (*)(std::byte*)> stack_;
  std::unique_ptr<Sanitizer> sanitizer_;  // tells a sanitizer of switches
  void* mine_ = nullptr;                  // stack pointers: of the fiber while it pauses,
  void* caller_ = nullptr;                // and of who resumed it while it runs
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool ended_ = true;
};

}  // namespace spillway::simt
