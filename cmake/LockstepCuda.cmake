# lockstep_cuda_sources(target sources...): adds sources of CUDA's language to a module, compiled by nvcc for all major
# architectures that it knows, and as PTX for those to come. Only for a build with LOCKSTEP_HAS_CUDA.
#
# The architectures are nvcc's own list: that of CMake 3.25 has some that CUDA 13 does not know any more.
set(CMAKE_CUDA_ARCHITECTURES OFF)
set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH "The compiler of CUDA")
enable_language(CUDA)

function(lockstep_cuda_sources target)
  # A target of its own, because the module's options are for the compiler of C++. No fused multiply-adds: an update
  # has the same bits as on the CPU.
  add_library(${target}_cuda OBJECT ${ARGN})
  target_compile_options(${target}_cuda PRIVATE -arch=all-major --fmad=false -Xcompiler=-fPIC)
  target_include_directories(${target}_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src)
  # CMake 3.25 does not know how to ask nvcc 13 for C++20.
  set_target_properties(${target}_cuda PROPERTIES CUDA_STANDARD 17)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_cuda>)
  target_link_libraries(${target} PRIVATE lockstep::cuda)
endfunction()
