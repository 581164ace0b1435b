// The figures of a run's data, which people see before the first step. Not here: the data (data.h).
#pragma once

#include <cstdint>
#include <string>

namespace spillway {

struct DataFigures {
  std::int64_t documents = 0;        // rows and texts; token files do not say
  std::int64_t tokens = 0;           // after rows were cut
  std::int64_t with_loss = 0;        // positions with loss in one epoch
  std::int64_t positions = 0;        // of one epoch, padding included
  std::int64_t padding = 0;          // of these
  std::int64_t longest_row = 0;      // tokens, before it was cut; 0: there are no rows
  std::int64_t cut = 0;              // rows
  std::int64_t packs = 0;            // 0: rows are not packed
  std::int64_t split = 0;            // rows that go on in another pack
  std::int64_t pieces_left_out = 0;  // of such rows, as they have no loss
};
std::string words_of(const DataFigures& figures);

// "37.5 steps an epoch"
std::string words_of_epoch(std::int64_t sequences, std::int64_t sequences_of_step);

}  // namespace spillway
