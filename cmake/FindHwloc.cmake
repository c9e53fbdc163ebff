# hwloc by its library and header. Defines the target Hwloc::hwloc.
find_library(Hwloc_LIBRARY hwloc)
find_path(Hwloc_INCLUDE_DIR hwloc.h)
mark_as_advanced(Hwloc_LIBRARY Hwloc_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Hwloc REQUIRED_VARS Hwloc_LIBRARY Hwloc_INCLUDE_DIR)

if(Hwloc_FOUND AND NOT TARGET Hwloc::hwloc)
  add_library(Hwloc::hwloc UNKNOWN IMPORTED)
  set_target_properties(Hwloc::hwloc PROPERTIES
    IMPORTED_LOCATION ${Hwloc_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Hwloc_INCLUDE_DIR})
endif()
