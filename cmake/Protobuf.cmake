# Protobuf.cmake: the messages of src/train/output/loggers/proto/*.proto as C, made by protoc-c while building: TUTTI_PROTO_SOURCES, which are compiled
# with the train layer, and tutti_proto, what files that include them need.
#
# The generated code itself checks that the library is not older than the compiler.
execute_process(COMMAND ${PROTOC_C} --version OUTPUT_VARIABLE version RESULT_VARIABLE failed)
if(failed OR NOT version MATCHES "protobuf-c ([0-9.]+)" OR CMAKE_MATCH_1 VERSION_LESS 1.3)
  message(FATAL_ERROR "${PROTOC_C} is \"${version}\"; expected protobuf-c 1.3 or later")
endif()

set(TUTTI_PROTO_SOURCES "")
file(GLOB protos CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/train/output/loggers/proto/*.proto)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/proto)
foreach(proto ${protos})
  get_filename_component(name ${proto} NAME_WE)
  set(outputs ${CMAKE_BINARY_DIR}/proto/${name}.pb-c.c ${CMAKE_BINARY_DIR}/proto/${name}.pb-c.h)
  add_custom_command(OUTPUT ${outputs} DEPENDS ${proto} VERBATIM
    COMMAND ${PROTOC_C} --proto_path=${CMAKE_SOURCE_DIR}/src/train/output/loggers/proto --c_out=${CMAKE_BINARY_DIR}/proto ${proto})
  list(APPEND TUTTI_PROTO_SOURCES ${outputs})
endforeach()
add_library(tutti_proto INTERFACE)
target_include_directories(tutti_proto SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/proto)
target_link_libraries(tutti_proto INTERFACE PkgConfig::PROTOBUF_C)
