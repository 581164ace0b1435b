// The date that templates ask for with strftime_now().
// Not here: the flag that fixes it (trainer/options).
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace spillway {

// A day; the time of day is 0:00, so that the same data are the same tokens all day.
struct TemplateDate {
  std::chrono::year_month_day day;

  static TemplateDate today();                      // in local time
  static TemplateDate from_text(std::string_view);  // YYYY-MM-DD; throws InputError
  std::string text() const;                         // YYYY-MM-DD
};

// As Python's datetime.strftime() does. Throws a TemplateProblem if the format is none, or the text would be long.
std::string formatted_date(const TemplateDate& date, const std::string& format);

}  // namespace spillway
