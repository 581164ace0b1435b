# spillway_embed(<target> <header> <function> <file>...): the files go into the program, so that it stays one file. The header declares
# `std::span<const EmbeddedFile> <function>()` (files/embedded_file.h), which has them in this order; the target uses spillway_files.
# A literal's bytes are all written as \xNN, so that a file may hold any.
function(spillway_embed target header function)
  set(entries "")
  foreach(file ${ARGN})
    get_filename_component(name ${file} NAME_WLE)
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "(..)" "\\\\x\\1" literal "${bytes}")
    string(APPEND entries "      {\"${name}\", \"${literal}\"sv},\n")
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embedded_${function}.cpp)
  # Written where it differs, so that nothing is compiled anew without need.
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
#include <array>

#include "@header@"

std::span<const spillway::EmbeddedFile> spillway::@function@() {
  using namespace std::string_view_literals;
  static constexpr auto files = std::to_array<EmbeddedFile>({
@entries@  });
  return files;
}
]])
  target_sources(${target} PRIVATE ${source})
endfunction()
