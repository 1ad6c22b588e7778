# Device code: files with kernels are compiled by the GPU makers' compilers, each to one file with
# the code of all architectures, and put into the programs as bytes. Everything else is plain C++:
# CMake's own CUDA language would bring NVIDIA's runtime library along.
#
#   granary_device_code(cuda FILES...)   FILES lie in the calling folder. Code of memory_check.cu
#   granary_device_code(hip FILES...)    is found as device_code("memory_check").
#
# Each adds a generated C++ file to granary_gpu. With a backend that is not built it holds no code.

set(GRANARY_CUDA AUTO CACHE STRING "Compile CUDA device code: AUTO (where nvcc is), ON or OFF")
set_property(CACHE GRANARY_CUDA PROPERTY STRINGS AUTO ON OFF)
set(GRANARY_CUDA_ARCHITECTURES "80-real;90a-real;80-virtual" CACHE STRING
    "Compute capabilities: N-real is machine code, N-virtual is PTX for newer GPUs. \
Releases add 75-real;86-real;89-real;120-real")
option(GRANARY_CUDA_AS_TURING "Take the paths of compute capability 7.5 on any card, to try them \
where no such card is" OFF)
set(GRANARY_HIP OFF CACHE STRING "Compile HIP device code: AUTO (where hipcc is), ON or OFF")
set_property(CACHE GRANARY_HIP PROPERTY STRINGS AUTO ON OFF)
set(GRANARY_HIP_ARCHITECTURES "gfx906;gfx1030" CACHE STRING "AMD GPUs to compile for")

# Sets GRANARY_<KIND>_COMPILER where the backend is to be built, and says what is built.
function(granary_find_compiler kind program)
    set(compiler GRANARY_${kind}_COMPILER)
    if(GRANARY_${kind} STREQUAL "OFF")
        message(STATUS "GRANARY_${kind}=OFF: no ${kind} device code in this build")
        set(${compiler} "" PARENT_SCOPE)
        return()
    endif()
    find_program(GRANARY_${kind}_PROGRAM ${program} PATHS ${ARGN})
    set(found "${GRANARY_${kind}_PROGRAM}")
    set(reason "no ${program}")
    if(found AND kind STREQUAL "CUDA")
        execute_process(COMMAND ${found} --version OUTPUT_VARIABLE text)
        string(REGEX MATCH "release ([0-9]+)\\.([0-9]+)" text "${text}")
        set(version "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
        math(EXPR number "1000 * ${CMAKE_MATCH_1} + 10 * ${CMAKE_MATCH_2}")
        set(GRANARY_CUDA_VERSION ${number} PARENT_SCOPE)
        if(version VERSION_LESS 12.0)
            set(reason "${found} is of CUDA ${version}, 12.0 is the least")
            set(found "")
        endif()
    endif()
    if(found)
        message(STATUS "${kind} device code: ${found} for ${GRANARY_${kind}_ARCHITECTURES}")
    elseif(GRANARY_${kind} STREQUAL "ON")
        message(FATAL_ERROR "GRANARY_${kind}=ON: ${reason}")
    else()
        message(STATUS "${reason}: no ${kind} device code in this build")
        set(found "")
    endif()
    set(${compiler} "${found}" PARENT_SCOPE)
endfunction()

set(GRANARY_CUDA_VERSION 0)
set(GRANARY_HIP_VERSION 0)
granary_find_compiler(CUDA nvcc /usr/local/cuda/bin /opt/cuda/bin)
granary_find_compiler(HIP hipcc /opt/rocm/bin)

# The whole command but input, output and dependency file.
set(cuda_command ${GRANARY_CUDA_COMPILER} -fatbin -std=c++20 -O3 -Werror all-warnings
    -ccbin ${CMAKE_CXX_COMPILER})
foreach(architecture ${GRANARY_CUDA_ARCHITECTURES})
    if(architecture MATCHES "^([0-9]+[a-z]?)-real$")
        list(APPEND cuda_command -gencode arch=compute_${CMAKE_MATCH_1},code=sm_${CMAKE_MATCH_1})
    elseif(architecture MATCHES "^([0-9]+[a-z]?)-virtual$")
        list(APPEND cuda_command
             -gencode arch=compute_${CMAKE_MATCH_1},code=compute_${CMAKE_MATCH_1})
    else()
        message(FATAL_ERROR "GRANARY_CUDA_ARCHITECTURES: ${architecture} is neither N-real nor "
                            "N-virtual")
    endif()
endforeach()
if(GRANARY_CUDA_AS_TURING)
    list(APPEND cuda_command -DGRANARY_CUDA_AS_TURING)
    target_compile_definitions(granary_gpu PRIVATE GRANARY_CUDA_AS_TURING)
endif()
set(hip_command ${GRANARY_HIP_COMPILER} --genco -x hip -std=c++20 -O3 -Wall -Wextra -Werror)
foreach(architecture ${GRANARY_HIP_ARCHITECTURES})
    list(APPEND hip_command --offload-arch=${architecture})
endforeach()
# Debian keeps the device library where hipcc does not look by itself.
set(debian_device_library /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/amdgcn/bitcode)
if(EXISTS ${debian_device_library})
    list(APPEND hip_command --rocm-device-lib-path=${debian_device_library})
endif()
set(GRANARY_CUDA_LEAST 0)
if(GRANARY_CUDA_COMPILER)
    string(REGEX MATCHALL "[0-9]+" capabilities "${GRANARY_CUDA_ARCHITECTURES}")
    list(SORT capabilities COMPARE NATURAL)
    list(GET capabilities 0 GRANARY_CUDA_LEAST)
endif()
set(GRANARY_HIP_LEAST 0)  # AMD's names have no order
set(GRANARY_cuda_COMMAND ${cuda_command})
set(GRANARY_hip_COMMAND ${hip_command})

function(granary_device_code kind)
    string(TOUPPER ${kind} KIND)
    # For tests, which compile them in their own way.
    list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
    set_property(GLOBAL PROPERTY GRANARY_${KIND}_FILES ${files})
    set_property(GLOBAL PROPERTY GRANARY_${KIND}_COMPILER ${GRANARY_${KIND}_COMPILER})
    set(version ${GRANARY_${KIND}_VERSION})
    set(least ${GRANARY_${KIND}_LEAST})
    set(table "")
    set(bytes "")
    set(outputs "")
    if(GRANARY_${KIND}_COMPILER)
        foreach(file ${ARGN})
            cmake_path(GET file STEM name)
            set(output ${CMAKE_CURRENT_BINARY_DIR}/${name}.${kind}.bin)
            add_custom_command(
                OUTPUT ${output}
                COMMAND ${GRANARY_${kind}_COMMAND} -I${CMAKE_SOURCE_DIR} -MD -MF ${output}.d
                        -o ${output} ${CMAKE_CURRENT_SOURCE_DIR}/${file}
                DEPENDS ${file}
                DEPFILE ${output}.d
                COMMENT "Compiling ${KIND} device code ${file}"
                VERBATIM)
            list(APPEND outputs ${output})
            set(symbol granary_${kind}_${name})
            string(APPEND bytes "asm(\".section .rodata\\n.balign 64\\n${symbol}:\\n"
                   ".incbin \\\"${output}\\\"\\n${symbol}_end:\\n.byte 0\\n.previous\\n\");\n"
                   "extern \"C\" const std::byte ${symbol}[], ${symbol}_end[];\n")
            string(APPEND table "    if (name == \"${name}\") return {${symbol}, ${symbol}_end};\n")
        endforeach()
    endif()
    add_custom_target(granary_${kind}_code DEPENDS ${outputs})
    add_dependencies(granary_gpu granary_${kind}_code)
    set(generated ${CMAKE_CURRENT_BINARY_DIR}/device_code.cpp)
    configure_file(${CMAKE_SOURCE_DIR}/gpu/device_code.cpp.in ${generated} @ONLY)
    target_sources(granary_gpu PRIVATE ${generated})
    set_source_files_properties(${generated} TARGET_DIRECTORY granary_gpu PROPERTIES
        OBJECT_DEPENDS "${outputs}")
endfunction()
