# millrace_layer(NAME SOURCES ... USES ... [LIBRARIES ...] [EFFORT 1|2|3]): one library target per
# folder of src/. A layer links only the layers it names, so the linker checks the layering. A
# release is compiled with -O3; layers whose code runs once a job, not once a step, say so by a lower
# EFFORT and are compiled in half the time.
add_library(millrace_options INTERFACE)
target_compile_options(millrace_options INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
if(MILLRACE_WERROR)
  target_compile_options(millrace_options INTERFACE -Werror)
endif()
if(MILLRACE_SANITIZE)
  target_compile_options(millrace_options INTERFACE -fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(millrace_options INTERFACE -fsanitize=${MILLRACE_SANITIZE})
endif()
if(MILLRACE_FUZZ AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(millrace_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(MILLRACE_UNITY)
  include(${CMAKE_CURRENT_LIST_DIR}/unity.cmake)
endif()

function(millrace_layer name)
  cmake_parse_arguments(LAYER "" "EFFORT" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_library(millrace_${name} STATIC ${LAYER_SOURCES})
  target_include_directories(millrace_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  foreach(used ${LAYER_USES})
    target_link_libraries(millrace_${name} PUBLIC millrace_${used})
  endforeach()
  target_link_libraries(millrace_${name} PUBLIC ${LAYER_LIBRARIES} PRIVATE millrace_options)
  if(LAYER_EFFORT)
    target_compile_options(millrace_${name} PRIVATE $<$<CONFIG:Release>:-O${LAYER_EFFORT}>)
  endif()
  if(MILLRACE_UNITY)
    millrace_combine(millrace_${name} millrace_headers)
  endif()
endfunction()

# millrace_with_options(RESULT SOURCES ... OPTIONS ...): sources of a layer that are compiled with
# options of their own; the layer lists ${RESULT}.
function(millrace_with_options result)
  cmake_parse_arguments(GROUP "" "" "SOURCES;OPTIONS" ${ARGN})
  set(sources ${GROUP_SOURCES})
  if(MILLRACE_UNITY)
    millrace_combined_file(sources ${result} ${GROUP_SOURCES})
  endif()
  set_source_files_properties(${sources} PROPERTIES
    COMPILE_OPTIONS "${GROUP_OPTIONS}" SKIP_PRECOMPILE_HEADERS ON)
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

# millrace_test(NAME SOURCES ... USES ...): one GoogleTest program per folder of tests/.
function(millrace_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  millrace_test_program(test_${name}
    SOURCES ${TEST_SOURCES}
    USES ${TEST_USES}
    LIBRARIES ${TEST_LIBRARIES} GTest::gtest_main)
  add_test(NAME ${name} COMMAND test_${name})
endfunction()

# millrace_test_program(TARGET SOURCES ... USES ... [LIBRARIES ...]): a program that tests run.
function(millrace_test_program target)
  cmake_parse_arguments(PROGRAM "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  if(MILLRACE_UNITY)
    millrace_combined_tests(PROGRAM_SOURCES ${target} ${PROGRAM_SOURCES})
  endif()
  add_executable(${target} ${PROGRAM_SOURCES})
  millrace_test_options(${target} ${PROGRAM_USES})
  target_link_libraries(${target} PRIVATE ${PROGRAM_LIBRARIES})
endfunction()

# millrace_test_options(TARGET LAYERS...): tests are compiled more often than they run. The warnings
# are false alarms of g++ 12 at this level, in std::string and where a test replaces operator new.
function(millrace_test_options target)
  foreach(used ${ARGN})
    target_link_libraries(${target} PRIVATE millrace_${used})
  endforeach()
  target_link_libraries(${target} PRIVATE GTest::gmock millrace_options)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE MILLRACE_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>
    -Wno-array-bounds -Wno-mismatched-new-delete -Wno-stringop-overflow)
  if(MILLRACE_UNITY)
    target_precompile_headers(${target} REUSE_FROM millrace_test_headers)
  endif()
endfunction()

# millrace_test_library(TARGET KIND SOURCES ... USES ...): files that several test programs have,
# compiled once, as code of a program is.
function(millrace_test_library target kind)
  cmake_parse_arguments(LIBRARY "" "" "SOURCES;USES" ${ARGN})
  if(MILLRACE_UNITY)
    millrace_combined_tests(LIBRARY_SOURCES ${target} ${LIBRARY_SOURCES})
  endif()
  add_library(${target} ${kind} ${LIBRARY_SOURCES})
  millrace_test_options(${target} ${LIBRARY_USES})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIE)
endfunction()
