#include "trainer/data/data_figures.h"

#include <fmt/core.h>

#include <algorithm>

#include "trainer/words/quantity.h"

namespace spillway {
namespace {

double percent(std::int64_t part, std::int64_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(whole, 1));
}

}  // namespace

std::string words_of(const DataFigures& figures) {
  std::string words = figures.documents > 0 ? counted(figures.documents, "document") + ", " : "";
  words += fmt::format("{}, {} with loss", counted(figures.tokens, "token"), with_commas(figures.with_loss));
  if (figures.longest_row > 0) words += fmt::format("; longest row {}", counted(figures.longest_row, "token"));
  if (figures.padding > 0)
    words += fmt::format("; {:.1f} % of positions are padding", percent(figures.padding, figures.positions));
  if (figures.cut > 0) words += fmt::format("; {} cut", counted(figures.cut, "row"));
  if (figures.packs > 0) words += fmt::format("; rows lie in {}", counted(figures.packs, "pack"));
  if (figures.split > 0) words += fmt::format("; {} split", counted(figures.split, "row"));
  if (figures.pieces_left_out > 0)
    words += fmt::format(", {} of them left out, without loss", counted(figures.pieces_left_out, "piece"));
  return words;
}

std::string words_of_epoch(std::int64_t sequences, std::int64_t sequences_of_step) {
  if (sequences % sequences_of_step == 0) return counted(sequences / sequences_of_step, "step") + " an epoch";
  return fmt::format("{:.2f} steps an epoch", static_cast<double>(sequences) / static_cast<double>(sequences_of_step));
}

}  // namespace spillway
