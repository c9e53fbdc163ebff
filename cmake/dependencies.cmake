# Everything comes from Debian 12 packages; `make deps` installs them.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)

# oneDNN's own package file asks for OpenCL headers, which a CPU build has no use for.
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
add_library(millrace_dnnl INTERFACE)
target_include_directories(millrace_dnnl SYSTEM INTERFACE $<BUILD_INTERFACE:${DNNL_INCLUDE_DIR}>)
target_link_libraries(millrace_dnnl INTERFACE dnnl)
