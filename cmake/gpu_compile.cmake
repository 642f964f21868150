# GPU compile checks by direct compiler calls: no CUDA or HIP language, no GPU, one host configuration.
#
#   monolayer_compile_gfx(NAME SOURCE ARCH [DEFINES D...] [OPTIONS O...] [ALLOW_SPILL])
#   monolayer_compile_sm90(NAME SOURCE     [DEFINES D...] [OPTIONS O...] [ALLOW_SPILL] [DEVICE_ONLY])
#   monolayer_program_sm90(NAME SOURCE     [DEFINES D...] [OPTIONS O...] [LIBS L...])
#
# Each makes a target NAME.ARCH (built by default, rebuilt when a header changes) and a test gpu.NAME.ARCH:
# the object has a kernel for that GPU, and none spills registers or uses scratch (spills on sm_90a).
# The object is NAME.ARCH.co, or NAME.sm90.o, in the current binary folder; what the compiler said about
# resources stands beside it in .log. The target's properties MONOLAYER_OBJECT and MONOLAYER_LOG name both.
# Where the architecture is not among the configured targets, nothing happens.
#
# monolayer_program_sm90 links a program NAME, in the current binary folder, by the target NAME.program; it is built on
# demand and by the target gpu_programs, and has no test: there may be no GPU. LIBS are targets of static libraries.

function(monolayer_gpu_object name source arch object)
  cmake_parse_arguments(PARSE_ARGV 4 arg "ALLOW_SPILL" "" "COMMAND")
  set(log ${object}.log)
  get_filename_component(source ${source} ABSOLUTE)
  add_custom_command(OUTPUT ${object} BYPRODUCTS ${log} DEPFILE ${object}.d
    COMMAND bash ${PROJECT_SOURCE_DIR}/cmake/compile_logged.sh ${log} ${object} ${arg_COMMAND}
            -o ${object} ${source}
    DEPENDS ${source} ${PROJECT_SOURCE_DIR}/cmake/compile_logged.sh
    COMMENT "Compiling ${name} for ${arch}" VERBATIM)
  add_custom_target(${name}.${arch} ALL DEPENDS ${object})
  set_target_properties(${name}.${arch} PROPERTIES MONOLAYER_OBJECT ${object} MONOLAYER_LOG ${log})
  set(spill)
  if(arg_ALLOW_SPILL)
    set(spill --allow-spill)
  endif()
  add_test(NAME gpu.${name}.${arch} COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/gpu/check_object.py
    ${spill} --readelf ${ROCM_LLVM_BIN}/llvm-readelf ${arch} ${object} ${log})
  set_tests_properties(gpu.${name}.${arch} PROPERTIES LABELS "gpu;${arch}" TIMEOUT 60)
endfunction()

# clang writes no dependency file for -MD in device-only mode, hence its own options for it.
function(monolayer_compile_gfx name source arch)
  if(NOT arch IN_LIST monolayer_targets)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 3 arg "ALLOW_SPILL" "" "DEFINES;OPTIONS")
  list(TRANSFORM arg_DEFINES PREPEND -D)
  set(spill)
  if(arg_ALLOW_SPILL)
    set(spill ALLOW_SPILL)
  endif()
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.${arch}.co)
  monolayer_gpu_object(${name} ${source} ${arch} ${object} ${spill}
    COMMAND ${HIPCXX} -x hip -O3 -std=c++20 --offload-arch=${arch} --offload-device-only
            --no-gpu-bundle-output -ffp-contract=off -Wall -Wextra -Rpass-analysis=kernel-resource-usage
            -Xclang -dependency-file -Xclang ${object}.d -Xclang -MT -Xclang ${object}
            ${arg_OPTIONS} ${arg_DEFINES} -I${PROJECT_SOURCE_DIR}/include)
endfunction()

# -O0 is the level of the host's half, which need only compile; device code keeps its own, -O3. DEVICE_ONLY leaves that half
# out, as the AMD compiler always does.
function(monolayer_compile_sm90 name source)
  if(NOT sm90 IN_LIST monolayer_targets)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 2 arg "ALLOW_SPILL;DEVICE_ONLY" "" "DEFINES;OPTIONS")
  list(TRANSFORM arg_DEFINES PREPEND -D)
  set(spill)
  if(arg_ALLOW_SPILL)
    set(spill ALLOW_SPILL)
  endif()
  set(output -c -O0)
  if(arg_DEVICE_ONLY)
    set(output -cubin)
  endif()
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.sm90.o)
  monolayer_gpu_object(${name} ${source} sm90 ${object} ${spill}
    COMMAND ${NVCC} -x cu ${output} -std=c++20 -gencode arch=compute_90a,code=sm_90a
            --expt-relaxed-constexpr -fmad=false -Xptxas -v -MD -MF ${object}.d -MT ${object}
            ${arg_OPTIONS} ${arg_DEFINES} -I${PROJECT_SOURCE_DIR}/include)
endfunction()

function(monolayer_program_sm90 name source)
  if(NOT sm90 IN_LIST monolayer_targets)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "DEFINES;OPTIONS;LIBS")
  list(TRANSFORM arg_DEFINES PREPEND -D)
  set(libraries)
  foreach(library IN LISTS arg_LIBS)
    list(APPEND libraries -Xlinker $<TARGET_FILE:${library}>)  # as a plain argument it would be read as CUDA
  endforeach()
  get_filename_component(source ${source} ABSOLUTE)
  set(program ${CMAKE_CURRENT_BINARY_DIR}/${name})
  add_custom_command(OUTPUT ${program} BYPRODUCTS ${program}.log DEPFILE ${program}.d
    COMMAND bash ${PROJECT_SOURCE_DIR}/cmake/compile_logged.sh ${program}.log ${program}
            ${NVCC} -x cu -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -fmad=false
            -Xptxas -v -MD -MF ${program}.d -MT ${program} ${arg_OPTIONS} ${arg_DEFINES}
            -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/tests -o ${program} ${source} ${libraries}
    DEPENDS ${source} ${arg_LIBS} ${PROJECT_SOURCE_DIR}/cmake/compile_logged.sh
    COMMENT "Building ${name} for sm90" VERBATIM)
  add_custom_target(${name}.program DEPENDS ${program})
  if(NOT TARGET gpu_programs)
    add_custom_target(gpu_programs)
  endif()
  add_dependencies(gpu_programs ${name}.program)
endfunction()
