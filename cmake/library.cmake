# What other projects use: one library of all layers, the headers that carry its contracts, and a
# package file for find_package(Millrace).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(library_objects)
foreach(layer base graph models passes parallel kernels comm backend compile runtime simulate planner data train report
        profile api)
  list(APPEND library_objects $<TARGET_OBJECTS:millrace_${layer}>)
endforeach()
add_library(millrace_library STATIC ${library_objects})
set_target_properties(millrace_library PROPERTIES
  OUTPUT_NAME millrace EXPORT_NAME millrace LINKER_LANGUAGE CXX)
target_compile_features(millrace_library INTERFACE cxx_std_20)
target_include_directories(millrace_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(millrace_library
  PUBLIC fmt::fmt
  PRIVATE OpenMP::OpenMP_CXX Threads::Threads Dnnl::dnnl Hwloc::hwloc yaml-cpp JPEG::JPEG PNG::PNG
          WebP::webp ZLIB::ZLIB
          ${CMAKE_DL_LIBS})

# Installed headers include each other as "millrace/graph/graph.h", so that the names of the
# layers do not meet those of the project that uses them.
set(public_headers
  millrace.h
  api/data.h api/job.h api/keywords.h api/model.h api/plan.h api/report.h
  backend/settings.h
  base/error.h base/json.h base/parts.h base/random.h base/rows.h base/setting_names.h
  comm/group.h comm/transport.h
  compile/memory_breakdown.h
  data/image/colour.h data/image/image.h data/image/rand_augment.h data/image/recipe.h data/mixing.h data/record_source.h data/sample.h
  graph/attributes.h graph/builder.h graph/graph.h graph/layout.h graph/margin_head.h graph/optimizers.h graph/types.h
  kernels/convolution_algorithm.h
  models/models.h
  parallel/placement.h parallel/plan.h parallel/policy.h parallel/schedule.h
  passes/settings.h
  train/device_report.h train/feed/feed.h train/job.h train/learning_rate.h train/loss_scale.h train/metric.h
  train/new_layers.h train/observer.h train/trainer.h train/worst_samples.h)
install(CODE "
  foreach(header ${public_headers})
    file(READ \"${PROJECT_SOURCE_DIR}/src/\${header}\" text)
    string(REGEX REPLACE \"(#include \\\")([a-z]+/)\" \"\\\\1millrace/\\\\2\" text \"\${text}\")
    file(WRITE \"${PROJECT_BINARY_DIR}/public/\${header}\" \"\${text}\")
    get_filename_component(folder \"\${header}\" DIRECTORY)
    file(INSTALL \"${PROJECT_BINARY_DIR}/public/\${header}\"
         DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/millrace/\${folder}\")
  endforeach()")

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/Millrace)
install(TARGETS millrace_library EXPORT MillraceTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
get_property(plugins GLOBAL PROPERTY millrace_plugins)
if(plugins)
  install(TARGETS ${plugins} LIBRARY DESTINATION lib/millrace COMPONENT program)
endif()
install(TARGETS millrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(EXPORT MillraceTargets NAMESPACE Millrace:: DESTINATION ${package_directory})
configure_package_config_file(cmake/MillraceConfig.cmake.in MillraceConfig.cmake
                              INSTALL_DESTINATION ${package_directory})
write_basic_package_version_file(MillraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/MillraceConfig.cmake
              ${PROJECT_BINARY_DIR}/MillraceConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindDnnl.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindHwloc.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindWebP.cmake
        DESTINATION ${package_directory})
