// The shared library spillway_mpi.so: MPI behind mpi_table.h. It alone sees MPI's headers.
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/mpi_table.h"

namespace {

constexpr std::uint64_t kLongest = std::uint64_t{1} << 30;  // bytes of one message of MPI, whose counts are ints

std::string words, library_name;  // of the last error; of the implementation
std::vector<MPI_Request> requests;
std::vector<MPI_Status> statuses;
std::vector<int> expected;  // [requests] bytes that are received; -1: sent

const char* check(int code, const char* call) {
  if (code == MPI_SUCCESS) return nullptr;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  words = std::string(call) + ": " + text;
  return words.c_str();
}

const char* library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  library_name.assign(text, std::find_if(text, text + length, [](char c) { return c == ',' || c == '\n'; }));
  return library_name.c_str();
}

const char* start(int* rank, int* ranks) {
  int provided = 0;
  if (const char* error = check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread"))
    return error;
  if (provided < MPI_THREAD_SERIALIZED) return "this MPI cannot be called from a thread other than the first";
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (const char* error = check(MPI_Comm_rank(MPI_COMM_WORLD, rank), "MPI_Comm_rank")) return error;
  return check(MPI_Comm_size(MPI_COMM_WORLD, ranks), "MPI_Comm_size");
}

const char* broadcast(void* data, int bytes) { return check(MPI_Bcast(data, bytes, MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast"); }

const char* begin(const SpillwayMpiMessage* messages, std::size_t count) {
  requests.clear(), expected.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const SpillwayMpiMessage& message = messages[i];
    std::uint64_t done = 0;
    do {  // an empty message is one, too
      const int bytes = static_cast<int>(std::min(kLongest, message.bytes - done));
      MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
      expected.push_back(message.is_sent ? -1 : bytes);
      const char* const error =
          message.is_sent
              ? check(MPI_Isend(message.data + done, bytes, MPI_BYTE, message.rank, 0, MPI_COMM_WORLD, &request), "MPI_Isend")
              : check(MPI_Irecv(message.data + done, bytes, MPI_BYTE, message.rank, 0, MPI_COMM_WORLD, &request), "MPI_Irecv");
      if (error != nullptr) return error;
      done += static_cast<std::uint64_t>(bytes);
    } while (done < message.bytes);
  }
  statuses.resize(requests.size());
  return nullptr;
}

const char* test(bool* is_complete) {
  int all = 0;
  const int code = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all, statuses.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : statuses) {
      if (status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING) return check(status.MPI_ERROR, "MPI_Testall");
    }
  }
  if (const char* error = check(code, "MPI_Testall")) return error;
  *is_complete = all != 0;
  if (all == 0) return nullptr;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    int bytes = 0;
    if (expected[i] < 0) continue;
    MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
    if (bytes == expected[i]) continue;
    words = std::to_string(bytes) + " bytes came where " + std::to_string(expected[i]) + " were expected";
    return words.c_str();
  }
  return nullptr;
}

const char* finish() { return check(MPI_Finalize(), "MPI_Finalize"); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const SpillwayMpiTable* spillway_mpi_table() {
  static const SpillwayMpiTable table{spillway::kMpiTableVersion, library, start, broadcast, begin, test, finish};
  return &table;
}
