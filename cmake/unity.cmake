# Builds in minutes: the files of a target are compiled together, and the headers that nearly all
# of them include are compiled once. Developers who change one file do better without
# (preset `separate`), which also finds includes that are missing.
set(MILLRACE_BATCH 24 CACHE STRING "Files that are compiled together")
mark_as_advanced(MILLRACE_BATCH)

# What the anonymous namespace of a file hides is seen as part of the file that includes it.
target_compile_options(millrace_options INTERFACE -Wno-subobject-linkage)

file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/headers.cpp CONTENT "// Has the precompiled headers.\n")
add_library(millrace_headers OBJECT ${PROJECT_BINARY_DIR}/headers.cpp)
target_link_libraries(millrace_headers PRIVATE
  fmt::fmt nlohmann_json::nlohmann_json OpenMP::OpenMP_CXX Threads::Threads millrace_options)
target_precompile_headers(millrace_headers PRIVATE
  <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstdint> <cstring>
  <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set>
  <span> <stdexcept> <string> <string_view> <thread> <unordered_map> <utility> <vector>
  <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)

# The same with GoogleTest, for tests. A program, as they are: its code is placed as theirs is.
if(MILLRACE_TESTS)
  find_package(GTest REQUIRED)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/test_headers.cpp CONTENT "int main() {}\n")
  add_executable(millrace_test_headers ${PROJECT_BINARY_DIR}/test_headers.cpp)
  target_compile_options(millrace_test_headers PRIVATE $<$<CONFIG:Release>:-O1>)
  target_link_libraries(millrace_test_headers PRIVATE GTest::gmock fmt::fmt
    nlohmann_json::nlohmann_json OpenMP::OpenMP_CXX Threads::Threads millrace_options)
  target_precompile_headers(millrace_test_headers PRIVATE
    <algorithm> <array> <atomic> <chrono> <cmath> <filesystem> <fstream> <functional> <map> <memory>
    <mutex> <numeric> <optional> <set> <span> <string> <string_view> <thread> <vector>
    <fmt/format.h> <nlohmann/json.hpp> <gmock/gmock.h> <gtest/gtest.h>)
endif()

# millrace_combine(TARGET HEADERS): compiles a target's files together, with the precompiled
# headers of the target HEADERS.
function(millrace_combine target headers)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${MILLRACE_BATCH})
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

# millrace_combined_file(RESULT NAME SOURCES...): a file that includes the sources, for those that
# CMake does not combine as they have options of their own.
function(millrace_combined_file result name)
  set(text "")
  foreach(source ${ARGN})
    get_filename_component(path ${source} ABSOLUTE)
    string(APPEND text "#include \"${path}\"\n")
  endforeach()
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}")
  set(${result} ${file} PARENT_SCOPE)
endfunction()

# millrace_combined_tests(RESULT NAME SOURCES...): the sources of a test program, with its *_test.cpp
# files made into one. Others, whose functions several files call, stay as they are.
function(millrace_combined_tests result name)
  set(tests "")
  set(others "")
  foreach(source ${ARGN})
    get_filename_component(path ${source} ABSOLUTE)
    if(path MATCHES "_test\\.cpp$")
      list(APPEND tests ${path})
    else()
      list(APPEND others ${source})
    endif()
  endforeach()
  list(LENGTH tests count)
  if(count GREATER 1)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_files.cpp)
    set(script ${PROJECT_SOURCE_DIR}/cmake/combine.cmake)
    add_custom_command(OUTPUT ${file}
      COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} "-DSOURCES=${tests}" -DOUTPUT=${file} -P ${script}
      DEPENDS ${tests} ${script} VERBATIM)
    list(APPEND others ${file})
  else()
    list(APPEND others ${tests})
  endif()
  set(${result} ${others} PARENT_SCOPE)
endfunction()
