# What tests, benchmarks and examples share: flags, where the tools are, which targets are checked.

set(toolchain_default $ENV{MONOLAYER_TOOLCHAIN_DIR})
if(NOT toolchain_default)
  set(toolchain_default ${PROJECT_SOURCE_DIR}/.toolchain)
endif()
set(MONOLAYER_TOOLCHAIN_DIR ${toolchain_default} CACHE PATH "Where ./dev keeps Catch2 and the ROCm compiler")
list(APPEND CMAKE_PREFIX_PATH ${MONOLAYER_TOOLCHAIN_DIR}/catch2/usr)

# The GPU compilers. They are called directly, so one configuration serves all targets.
find_program(HIPCXX NAMES amdclang++ clang++ HINTS ${MONOLAYER_TOOLCHAIN_DIR}/rocm/bin NO_DEFAULT_PATH
             PATHS /opt/rocm/bin DOC "clang++ with the ROCm device libraries and HIP headers")
if(HIPCXX AND NOT ROCM_LLVM_BIN)
  get_filename_component(llvm_bin ${HIPCXX} REALPATH)
  get_filename_component(llvm_bin ${llvm_bin} DIRECTORY)
  set(ROCM_LLVM_BIN ${llvm_bin} CACHE PATH "The folder with llvm-readelf and llvm-objdump" FORCE)
endif()
find_program(NVCC NAMES nvcc PATHS /usr/local/cuda/bin DOC "CUDA's compiler, 13.0 or newer")

set(MONOLAYER_TARGETS auto CACHE STRING
    "What the tests cover: a list of host, gfx950, gfx942, sm90; auto is host and each GPU that has its compiler")
set(monolayer_targets ${MONOLAYER_TARGETS})
if(monolayer_targets STREQUAL "auto")
  set(monolayer_targets host)
  if(HIPCXX)
    list(APPEND monolayer_targets gfx950 gfx942)
  endif()
  if(NVCC)
    list(APPEND monolayer_targets sm90)
  endif()
endif()
foreach(target IN LISTS monolayer_targets)
  if(target MATCHES "^gfx" AND NOT HIPCXX)
    message(FATAL_ERROR "${target} needs HIPCXX: run ./dev toolchain, or set -DHIPCXX=...")
  elseif(target STREQUAL "sm90" AND NOT NVCC)
    message(FATAL_ERROR "sm90 needs nvcc: put it on PATH, or set -DNVCC=...")
  elseif(NOT target MATCHES "^(host|gfx950|gfx942|sm90)$")
    message(FATAL_ERROR "MONOLAYER_TARGETS: '${target}' is none of host, gfx950, gfx942, sm90")
  endif()
endforeach()
message(STATUS "monolayer: targets ${monolayer_targets}")

# Flags for everything that the project builds for the host. The bits of a float result may
# depend on no compiler choice: no contraction, no fast math, no -march=native. -O1: programs are
# large, and a second of a test costs less than the compiler's. GCC collects its garbage from half a GiB on, which saves
# a seventh of its time.
add_library(monolayer_warnings INTERFACE)
target_compile_options(monolayer_warnings INTERFACE -Wall -Wextra $<$<BOOL:${MONOLAYER_WERROR}>:-Werror>)
add_library(monolayer_development INTERFACE)
target_link_libraries(monolayer_development INTERFACE monolayer_warnings)
target_compile_options(monolayer_development INTERFACE -O1 -ffp-contract=off
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>)

# The simulator's inside, compiled once for all programs here: every unit of theirs would compile it anew, and it pays to
# optimise it well. GCC emits the inline functions that nothing in the library's one unit calls.
if(TARGET monolayer_sim AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(unit ${PROJECT_BINARY_DIR}/simulator.cpp)
  file(CONFIGURE OUTPUT ${unit} CONTENT "#include <monolayer/arch/sim/sim.hpp>\n")
  add_library(monolayer_simulator STATIC ${unit})
  target_link_libraries(monolayer_simulator PUBLIC monolayer_sim PRIVATE monolayer_warnings)
  target_compile_options(monolayer_simulator PRIVATE -O2 -ffp-contract=off -fkeep-inline-functions)
  target_compile_definitions(monolayer_simulator INTERFACE MONOLAYER_SIM_ELSEWHERE)
  set_target_properties(monolayer_simulator PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(monolayer_development INTERFACE monolayer_simulator)
endif()

# Reading checkpoints and writing random ones, for examples and tests: compiled once, as one unit, or JSON's templates would
# take the compiler's time in each. Random weights come from the tests' reference. The headers of monolayer need no JSON.
find_package(nlohmann_json 3 QUIET)
if(TARGET nlohmann_json::nlohmann_json)
  set(sources checkpoint/mapped_file.cpp checkpoint/config.cpp checkpoint/safetensors.cpp checkpoint/tensor_reader.cpp
    checkpoint/glm5_checkpoint.cpp checkpoint/host_model.cpp make_checkpoint/write_safetensors.cpp
    make_checkpoint/random_checkpoint.cpp)
  list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/examples/)
  add_library(monolayer_checkpoint STATIC EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(monolayer_checkpoint PUBLIC monolayer nlohmann_json::nlohmann_json PRIVATE monolayer_development)
  target_include_directories(monolayer_checkpoint
    PUBLIC ${PROJECT_SOURCE_DIR}/examples PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  set_target_properties(monolayer_checkpoint PROPERTIES CXX_EXTENSIONS OFF UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
endif()

include(${CMAKE_CURRENT_LIST_DIR}/gpu_compile.cmake)
