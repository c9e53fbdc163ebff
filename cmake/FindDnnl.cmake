# oneDNN by its library and headers: its own package file asks for OpenCL headers, which a CPU
# build has no use for. Defines the target Dnnl::dnnl.
find_library(Dnnl_LIBRARY dnnl)
find_path(Dnnl_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
mark_as_advanced(Dnnl_LIBRARY Dnnl_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Dnnl REQUIRED_VARS Dnnl_LIBRARY Dnnl_INCLUDE_DIR)

if(Dnnl_FOUND AND NOT TARGET Dnnl::dnnl)
  add_library(Dnnl::dnnl UNKNOWN IMPORTED)
  set_target_properties(Dnnl::dnnl PROPERTIES
    IMPORTED_LOCATION ${Dnnl_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Dnnl_INCLUDE_DIR})
endif()
