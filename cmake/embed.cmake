# millrace_embed(OUTPUT HEADER FUNCTION FILES...): writes the C++ file OUTPUT with the text of each
# file, found by name through FUNCTION, which HEADER declares, so that the program needs no files at
# run time. A change of a file builds it anew.
function(millrace_embed output header function)
  string(REGEX REPLACE "/.*" "" layer ${header})
  set(entries "")
  foreach(path ${ARGN})
    file(READ ${path} text)
    get_filename_component(name ${path} NAME)
    string(APPEND entries "    {\"${name}\", R\"EMBEDDED(${text})EMBEDDED\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${path})
  endforeach()
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
#include "@header@"

#include <stdexcept>

namespace millrace::@layer@ {

std::string_view @function@(std::string_view name) {
  struct File {
    std::string_view name;
    std::string_view text;
  };
  static constexpr File kFiles[] = {
@entries@  };
  for (const File& file : kFiles) {
    if (file.name == name) return file.text;
  }
  throw std::logic_error("no such embedded file");
}

}  // namespace millrace::@layer@
]])
endfunction()
