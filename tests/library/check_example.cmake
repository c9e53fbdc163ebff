# Fails unless the example builds against the installed package alone, learns and stays short.
cmake_minimum_required(VERSION 3.22)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN} ended with ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(STRINGS ${EXAMPLE}/main.cpp lines)
list(LENGTH lines length)
if(length GREATER 60)
  message(FATAL_ERROR "The example has ${length} lines; it should not need more than 60.")
endif()

file(REMOVE_RECURSE ${WORK})
file(COPY ${EXAMPLE}/ DESTINATION ${WORK}/source)
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${WORK}/source -B ${WORK}/build -G ${GENERATOR}
    -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${COMPILER}
    "-DCMAKE_CXX_FLAGS=${FLAGS} -Wall -Wextra -Werror")
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/own_network)
message("${output}")

if(NOT output MATCHES "loss ([0-9.]+) -> ([0-9.]+)\nright ([0-9.]+) of 250")
  message(FATAL_ERROR "The example does not say what it learned.")
endif()
if(NOT CMAKE_MATCH_1 GREATER 1.0 OR NOT CMAKE_MATCH_2 LESS 0.7 OR NOT CMAKE_MATCH_3 GREATER 0.9)
  message(FATAL_ERROR "The example did not learn.")
endif()
file(REMOVE_RECURSE ${WORK})
