// Tells, once for each, of a collective that takes long: which operation, and which rank it waits for. A rank whose lane is
// silent may be busy; whoever reads the log should know what others wait for. Not here: processes that are gone
// (trainer/run/process_team.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "collectives/communicator.h"

namespace spillway {

class SlowCollective {
 public:
  using Say = std::function<void(const std::string&)>;  // from a thread of its own

  SlowCollective(const Communicator& communicator, Say say, std::chrono::milliseconds patience);
  ~SlowCollective();
  SlowCollective(const SlowCollective&) = delete;
  SlowCollective& operator=(const SlowCollective&) = delete;

  // Called by the network lane's thread around each operation.
  void begin(int id, const std::string& name);  // which must outlive the operation
  void end();

 private:
  void watch();

  const Communicator& communicator_;
  const Say say_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int id_ = 0;
  const std::string* name_ = nullptr;  // of the operation under way, unless it was told of
  std::chrono::steady_clock::time_point began_;
  bool is_over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace spillway
