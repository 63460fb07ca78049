# Build rules shared by every module: one static library, one unit-test program and one corpus replay per fuzzer.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark QUIET)  # scripts/setup --dev installs it

# For builds from scratch: modules' sources are compiled eight at a time, in half of the time. Kernels are not:
# they have flags of their own.
option(KVERN_UNITY "Compile several sources of a module at once" OFF)

find_program(KVERN_CCACHE ccache)
if(KVERN_CCACHE)
  # Without these ccache keeps nothing that was compiled with a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${KVERN_CCACHE})
endif()

# N1: no contraction anywhere; a fused multiply-add exists only where the source says so.
add_compile_options(-Wall -Wextra -ffp-contract=off -fno-math-errno)
# gcc 12 sees overlapping copies in std::string's own assignment.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(KVERN_WERROR)
  add_compile_options(-Werror)
endif()
if(KVERN_SANITIZE OR KVERN_UNITY)
  # gcc 12 loses track of variants among checks, or in long files.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if(KVERN_SANITIZE)
  add_compile_options(-fsanitize=${KVERN_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KVERN_SANITIZE})
  if(KVERN_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# Unit tests spend their time in the modules, and their compilation in gtest: they are built without
# optimisation, on headers that are compiled once. The modules are what is optimised, and what the
# sanitizers look at in full. tidy compiles without precompiled headers: a source includes what it uses.
set(test_checks)
if(KVERN_SANITIZE MATCHES "undefined")
  # Half of a test's compile time goes into these two checks, which the modules themselves have.
  set(test_checks -fno-sanitize=null,alignment)
endif()
# A time stamp would keep ccache from finding what a header compiled again was used for.
set(light_test_options ${test_checks} -O0 $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang\ -fno-pch-timestamp>)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/test_headers.cc CONTENT "")
add_library(test_headers OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/test_headers.cc)
target_include_directories(test_headers PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(test_headers PRIVATE Threads::Threads fmt::fmt GTest::gtest_main GTest::gmock)
target_compile_options(test_headers PRIVATE ${light_test_options})
target_precompile_headers(test_headers PRIVATE <gtest/gtest.h> <gmock/gmock.h> <fmt/format.h>
                          <nlohmann/json.hpp>)

# kvern_test_program(NAME LIBRARY...): how a program of unit tests is compiled and linked.
function(kvern_test_program program)
  target_link_libraries(${program} PRIVATE ${ARGN} GTest::gtest_main GTest::gmock)
  target_compile_options(${program} PRIVATE ${light_test_options})
  target_precompile_headers(${program} REUSE_FROM test_headers)
endfunction()

# kvern_unity(TARGET): its sources may be compiled several at a time.
function(kvern_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${KVERN_UNITY} UNITY_BUILD_BATCH_SIZE 16)
endfunction()

# Every unit-test program and corpus replay, without the product and the end-to-end tests: what the
# sanitizer presets build. thread_tests are those in which threads share memory.
# fuzzers are the libFuzzer programs of the fuzz preset.
add_custom_target(unit_tests)
add_custom_target(thread_tests)
add_custom_target(fuzzers)

# The Google Benchmark programs, where that library is. Not built by default.
add_custom_target(benchmarks)

# kvern_unit_test(NAME PROGRAM ARGS...): a fast test of one module, labelled "unit" and, where it fits, "threads".
function(kvern_unit_test name program)
  # Commands are slow to compile with sanitizers, and what they call is tested with them by itself.
  if(KVERN_SANITIZE AND name MATCHES "^cli_")
    return()
  endif()
  add_test(NAME ${name} COMMAND ${program} ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  add_dependencies(unit_tests ${program})
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 300)
  if(name MATCHES "^(base|kv_threads|engine|engine_exec|live_answers)_test$")
    add_dependencies(thread_tests ${program})
    set_tests_properties(${name} PROPERTIES LABELS "unit;threads")
  endif()
endfunction()

# kvern_module(NAME SOURCES ... [DEPS module ...] [LINK library ...] [TESTS ...] [BENCHES foo_bench.cc ...]
#              [FUZZERS foo_fuzz.cc ...] [HEAVY_TESTS])
#   HEAVY_TESTS compute much themselves, and are optimised like the module.
#   DEPS are other modules (the table in ARCHITECTURE.md); LINK are third-party libraries, private to the module.
#   A fuzzer foo_fuzz.cc replays tests/fuzz/foo/* as a test, or is a libFuzzer program when KVERN_FUZZ is on.
function(kvern_module name)
  cmake_parse_arguments(M "HEAVY_TESTS" "" "SOURCES;DEPS;LINK;TESTS;BENCHES;FUZZERS" ${ARGN})
  set(library kvern_${name})
  add_library(${library} STATIC ${M_SOURCES})
  target_include_directories(${library} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${library} PUBLIC Threads::Threads fmt::fmt)
  kvern_unity(${library})
  foreach(dep ${M_DEPS})
    target_link_libraries(${library} PUBLIC kvern_${dep})
  endforeach()
  target_link_libraries(${library} PRIVATE ${M_LINK})
  if(M_TESTS)
    add_executable(${name}_test ${M_TESTS})
    if(M_HEAVY_TESTS)
      target_compile_options(${name}_test PRIVATE ${test_checks})
      target_link_libraries(${name}_test PRIVATE ${library} ${M_LINK} GTest::gtest_main GTest::gmock)
    else()
      kvern_test_program(${name}_test ${library} ${M_LINK})
    endif()
    kvern_unit_test(${name}_test ${name}_test)
  endif()
  if(benchmark_FOUND)
    foreach(source ${M_BENCHES})
      get_filename_component(program ${source} NAME_WE)
      add_executable(${program} EXCLUDE_FROM_ALL ${source} ${PROJECT_SOURCE_DIR}/tests/bench/bench_main.cc)
      target_link_libraries(${program} PRIVATE ${library} ${M_LINK} benchmark::benchmark)
      add_dependencies(benchmarks ${program})
    endforeach()
  endif()
  foreach(source ${M_FUZZERS})
    kvern_fuzzer(${library} ${source} "${M_LINK}")
  endforeach()
endfunction()

function(kvern_fuzzer library source link)
  get_filename_component(program ${source} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" corpus ${program})
  add_executable(${program} ${source})
  target_link_libraries(${program} PRIVATE ${library} ${link})
  if(KVERN_FUZZ)
    add_dependencies(fuzzers ${program})
    target_compile_options(${program} PRIVATE -fsanitize=fuzzer)
    target_link_options(${program} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc)
    kvern_unit_test(${program}_replay ${program} ${PROJECT_SOURCE_DIR}/tests/fuzz/${corpus})
  endif()
endfunction()
