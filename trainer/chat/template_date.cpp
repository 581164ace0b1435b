#include "trainer/chat/template_date.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <ctime>

#include "files/json_text.h"
#include "memory/base/error.h"
#include "trainer/chat/template_problem.h"

namespace spillway {
namespace {

namespace chrono = std::chrono;

// Python's own fields, which C's strftime() lacks or gives for the local time zone: a day without a time zone has no %z and no
// %Z.
std::string without_pythons_fields(const std::string& format) {
  std::string made;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      made += format[i];
      continue;
    }
    const char field = format[++i];
    if (field == 'f') {
      made += "000000";
    } else if (format.compare(i, 2, ":z") == 0) {
      ++i;
    } else if (field != 'z' && field != 'Z') {
      made += '%';
      made += field;
    }
  }
  return made;
}

}  // namespace

TemplateDate TemplateDate::today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return {chrono::year(local.tm_year + 1900) / (local.tm_mon + 1) / local.tm_mday};
}

TemplateDate TemplateDate::from_text(std::string_view text) {
  const auto number = [&](std::size_t at, std::size_t size) {
    int found = -1;
    const char* const end = text.data() + at + size;
    return std::from_chars(text.data() + at, end, found).ptr == end ? found : -1;
  };
  if (text.size() == 10 && text[4] == '-' && text[7] == '-') {
    const int year = number(0, 4), month = number(5, 2), day = number(8, 2);
    if (year >= 1000 && month > 0 && day > 0) {
      const chrono::year_month_day found = chrono::year(year) / month / day;
      if (found.ok()) return {found};
    }
  }
  throw InputError(fmt::format("found the date {}, allowed: YYYY-MM-DD, from 1000-01-01 on", quoted_json(text)));
}

std::string TemplateDate::text() const {
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                     static_cast<unsigned>(day.day()));
}

std::string formatted_date(const TemplateDate& date, const std::string& format) {
  if (format.find('\0') != format.npos) throw TemplateProblem{"strftime_now() with a null character"};
  const chrono::sys_days days = date.day;
  std::tm fields{};
  fields.tm_year = static_cast<int>(date.day.year()) - 1900;
  fields.tm_mon = static_cast<int>(static_cast<unsigned>(date.day.month())) - 1;
  fields.tm_mday = static_cast<int>(static_cast<unsigned>(date.day.day()));
  fields.tm_wday = static_cast<int>(chrono::weekday(days).c_encoding());
  fields.tm_yday = static_cast<int>((days - chrono::sys_days(date.day.year() / 1 / 1)).count());
  fields.tm_isdst = -1;
  const std::string whole = "x" + without_pythons_fields(format);  // so that a text of no bytes shows a buffer that is too small
  std::array<char, 8192> buffer;
  const std::size_t bytes = std::strftime(buffer.data(), buffer.size(), whole.c_str(), &fields);
  if (bytes == 0) throw TemplateProblem{fmt::format("strftime_now() of a text of {} bytes or more", buffer.size())};
  return {buffer.data() + 1, bytes - 1};
}

}  // namespace spillway
