# Runs the pictures and audits of every state for both themes and each screen.
# cmake -DSCREENS=program -DOUT=folder -P run_screens.cmake
set(failed "")
foreach(theme light dark)
    foreach(screen "800x560 800x560 1" "1366x768 1366x768 1" "1920x1080 1920x1080 1"
                   "3840x2160 3840x2160 1" "3840x2160-at-2 1920x1080 2")
        separate_arguments(screen)
        list(GET screen 0 name)
        list(GET screen 1 size)
        list(GET screen 2 scale)
        execute_process(
            COMMAND ${CMAKE_COMMAND} -E env QT_QPA_PLATFORM=offscreen QT_SCALE_FACTOR=${scale}
                    ${SCREENS} ${OUT}/${name}-${theme} ${size} ${theme}
            RESULT_VARIABLE result)
        if(NOT result EQUAL 0)
            list(APPEND failed ${name}-${theme})
        endif()
    endforeach()
endforeach()
if(failed)
    message(FATAL_ERROR "faults on: ${failed}")
endif()
message(STATUS "no faults; pictures in ${OUT}")
