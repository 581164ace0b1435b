#include "trainer/host/interrupt.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "memory/base/error.h"

namespace spillway {
namespace {

// Runs `body` in a child process, so that its changes to signals end there. Returns the child's wait status.
template <typename Body>
int status_of(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

void expect_exit(int status, int code) {
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), code);
}

TEST(Interrupt, TheFirstSignalAsks) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    expect_exit(status_of([&] {
                  const InterruptHandler handler;
                  if (handler.requested()) _exit(1);
                  raise(signal);
                  _exit(handler.requested() ? 42 : 2);
                }),
                42);
  }
}

TEST(Interrupt, ASecondCtrlCEndsAtOnce) {
  expect_exit(status_of([] {
                const InterruptHandler handler;
                raise(SIGINT);
                raise(SIGINT);
                _exit(1);
              }),
              kExitInterrupted);
  expect_exit(status_of([] {
                const InterruptHandler handler;
                raise(SIGTERM);
                raise(SIGINT);
                _exit(1);
              }),
              kExitInterrupted);
}

TEST(Interrupt, ARepeatedSigtermStillLetsTheStepFinish) {
  expect_exit(status_of([] {
                const InterruptHandler handler;
                raise(SIGTERM);
                raise(SIGTERM);
                _exit(42);
              }),
              42);
}

TEST(Interrupt, FormerHandlersComeBack) {
  const int status = status_of([] {
    std::signal(SIGINT, SIG_DFL);
    {
      const InterruptHandler handler;
      raise(SIGINT);
    }
    raise(SIGINT);  // ends the process, as the signal does by default
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST(Interrupt, WhatNohupAsksForStays) {
  expect_exit(status_of([] {
                std::signal(SIGHUP, SIG_IGN);
                const InterruptHandler handler;
                raise(SIGHUP);
                _exit(InterruptHandler::requested() ? 1 : 42);
              }),
              42);
}

TEST(Interrupt, OneWithinAnotherChangesNothing) {
  expect_exit(status_of([] {
                const InterruptHandler outer;
                {
                  const InterruptHandler inner;
                }
                raise(SIGTERM);
                try {
                  InterruptHandler::stop_where_requested("the rest was left");
                } catch (const Error& error) {
                  _exit(error.exit_code());
                }
                _exit(1);
              }),
              kExitInterrupted);
}

TEST(Interrupt, AnotherRunStartsAfresh) {
  expect_exit(status_of([] {
                {
                  const InterruptHandler handler;
                  raise(SIGINT);
                }
                const InterruptHandler handler;
                _exit(handler.requested() ? 1 : 42);
              }),
              42);
}

}  // namespace
}  // namespace spillway
