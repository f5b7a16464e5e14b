# Needs.cmake: reports everything that is missing for the build in one message, with the remedy, instead of one item per run.
#
#   tutti_need(FOUND WHAT)    WHAT is missing unless FOUND is true
#   tutti_needs_met()         fails with the message if something is; make shows that of BUILD/missing.txt, in one line
function(tutti_need found what)
  if(NOT found)
    set(TUTTI_MISSING ${TUTTI_MISSING} ${what} PARENT_SCOPE)
  endif()
endfunction()

function(tutti_needs_met)
  if(TUTTI_MISSING)
    list(JOIN TUTTI_MISSING ", " missing)
    file(WRITE "${CMAKE_BINARY_DIR}/missing.txt" "not found here: ${missing}: scripts/install-deps installs what is missing\n")
    message(FATAL_ERROR "Building Tutti needs what was not found here: ${missing}.\nscripts/install-deps installs what is missing.")
  endif()
endfunction()

# Programs, before project() looks for a compiler. One that the caller has set is kept.
find_program(TUTTI_CC NAMES cc gcc clang)
if(NOT CMAKE_C_COMPILER AND NOT CMAKE_TOOLCHAIN_FILE AND "$ENV{CC}" STREQUAL "")
  tutti_need("${TUTTI_CC}" "a C compiler (gcc)")
endif()
if(CMAKE_GENERATOR STREQUAL "Ninja" AND NOT CMAKE_MAKE_PROGRAM)
  find_program(TUTTI_NINJA NAMES ninja ninja-build samu)
  tutti_need("${TUTTI_NINJA}" "ninja (ninja-build)")
endif()
find_program(PKG_CONFIG_EXECUTABLE NAMES pkg-config pkgconf)
tutti_need("${PKG_CONFIG_EXECUTABLE}" "pkg-config")
find_program(PROTOC_C protoc-c)
tutti_need("${PROTOC_C}" "protoc-c (protobuf-c-compiler)")
if(TUTTI_MISSING)
  list(APPEND TUTTI_MISSING "perhaps libraries")
endif()
tutti_needs_met()
