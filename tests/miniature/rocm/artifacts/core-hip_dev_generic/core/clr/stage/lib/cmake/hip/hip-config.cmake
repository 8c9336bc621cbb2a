# find_package(hip): the runtime as a library for the host's compiler, and where HIP's own is.
get_filename_component(HIP_ROOT_DIR "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(hip_INCLUDE_DIR "${HIP_ROOT_DIR}/include")
set(HIP_HIPCC_EXECUTABLE "${HIP_ROOT_DIR}/bin/hipcc")
if(NOT TARGET hip::amdhip64)
  add_library(hip::amdhip64 SHARED IMPORTED)
  set_target_properties(hip::amdhip64 PROPERTIES
    IMPORTED_LOCATION "${HIP_ROOT_DIR}/lib/libamdhip64.so"
    IMPORTED_SONAME "libamdhip64.so.7"
    INTERFACE_COMPILE_DEFINITIONS "__HIP_PLATFORM_AMD__=1"
    INTERFACE_INCLUDE_DIRECTORIES "${hip_INCLUDE_DIR}")
  add_library(hip::host INTERFACE IMPORTED)
  set_target_properties(hip::host PROPERTIES INTERFACE_LINK_LIBRARIES hip::amdhip64)
endif()
