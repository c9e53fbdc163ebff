# millrace_layer(NAME SOURCES ... USES ...): one library target per folder of src/.
# A layer links only the layers it names, so the linker checks the layering.
add_library(millrace_options INTERFACE)
target_compile_options(millrace_options INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
if(MILLRACE_WERROR)
  target_compile_options(millrace_options INTERFACE -Werror)
endif()
if(MILLRACE_SANITIZE)
  target_compile_options(millrace_options INTERFACE -fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(millrace_options INTERFACE -fsanitize=${MILLRACE_SANITIZE})
endif()

function(millrace_layer name)
  cmake_parse_arguments(LAYER "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_library(millrace_${name} STATIC ${LAYER_SOURCES})
  target_include_directories(millrace_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                                     $<INSTALL_INTERFACE:include/millrace>)
  foreach(used ${LAYER_USES})
    target_link_libraries(millrace_${name} PUBLIC millrace_${used})
  endforeach()
  target_link_libraries(millrace_${name} PUBLIC ${LAYER_LIBRARIES} PRIVATE $<BUILD_INTERFACE:millrace_options>)
endfunction()

# millrace_test(NAME SOURCES ... USES ...): one GoogleTest program per folder of tests/.
function(millrace_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_executable(test_${name} ${TEST_SOURCES})
  foreach(used ${TEST_USES})
    target_link_libraries(test_${name} PRIVATE millrace_${used})
  endforeach()
  target_link_libraries(test_${name} PRIVATE ${TEST_LIBRARIES} GTest::gmock GTest::gtest_main millrace_options)
  target_compile_definitions(test_${name} PRIVATE MILLRACE_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND test_${name})
endfunction()
