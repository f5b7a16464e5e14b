# Files in an isa/ folder are compiled once for each instruction set of the processor, with its options, and with TUTTI__ISA and
# TUTTI__LANES (floats per vector). Loops must unroll into registers in every build type.
set(TUTTI_ISAS base)
set(TUTTI_ISA_LANES_base 4) # SSE2, NEON, or what the compiler makes of four floats
set(TUTTI_ISA_FLAGS_base "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND TUTTI_ISAS avx2 avx512)
  set(TUTTI_ISA_LANES_avx2 8)
  set(TUTTI_ISA_FLAGS_avx2 -mavx2 -mfma)
  set(TUTTI_ISA_LANES_avx512 16)
  set(TUTTI_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512)
endif()

# Replaces each isa/NAME.c in the list of that name by one file per set, which includes it.
function(tutti_for_each_isa list)
  set(result ${${list}})
  list(FILTER result EXCLUDE REGEX "/isa/")
  set(each ${${list}})
  list(FILTER each INCLUDE REGEX "/isa/")
  foreach(source ${each})
    get_filename_component(name ${source} NAME_WE)
    foreach(isa ${TUTTI_ISAS})
      set(file ${CMAKE_BINARY_DIR}/isa/${name}_${isa}.c)
      file(CONFIGURE OUTPUT ${file} CONTENT "#include \"${source}\"\n")
      set_source_files_properties(${file} PROPERTIES
        OBJECT_DEPENDS ${CMAKE_SOURCE_DIR}/${source} INCLUDE_DIRECTORIES ${CMAKE_SOURCE_DIR}
        COMPILE_OPTIONS "-O3;${TUTTI_ISA_FLAGS_${isa}}"
        COMPILE_DEFINITIONS "TUTTI__ISA=${isa};TUTTI__LANES=${TUTTI_ISA_LANES_${isa}}")
      list(APPEND result ${file})
    endforeach()
  endforeach()
  set(${list} ${result} PARENT_SCOPE)
endfunction()
