# arm64.cmake: a toolchain file that cross-compiles for arm64, against the system that
# scripts/arm64-sysroot unpacks, and runs the programs in qemu-user. The preset arm64 uses it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(TUTTI_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build-arm64/sysroot" CACHE PATH "The arm64 system to compile against")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TUTTI_SYSROOT)
get_filename_component(CMAKE_SYSROOT "${TUTTI_SYSROOT}" ABSOLUTE)
if(NOT EXISTS "${CMAKE_SYSROOT}/usr/include")
  message(FATAL_ERROR "${CMAKE_SYSROOT} is no arm64 system: scripts/arm64-sysroot unpacks one there")
endif()

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER) # protoc-c etc. run on this machine
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")

find_program(TUTTI_QEMU qemu-aarch64 NO_CMAKE_FIND_ROOT_PATH)
if(TUTTI_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${TUTTI_QEMU} -cpu cortex-a76 -L ${CMAKE_SYSROOT}) # NEON without SVE, as most have
endif()
