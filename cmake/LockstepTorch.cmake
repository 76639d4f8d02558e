# Finds LibTorch, 1.13 or newer, and fmt. LibTorch is Debian's, or the one that CMAKE_PREFIX_PATH names; for
# the one inside Python's wheel that is
#   $(python3 -c "import torch; print(torch.utils.cmake_prefix_path)")
#
# A LibTorch that was built with CUDA is linked with its CUDA libraries if the CUDA toolkit is installed, and without
# them if it is not, or with LOCKSTEP_CPU_ONLY. Both ways name the libraries directly. LibTorch's own package would want
# a toolkit of its own version, and libraries that no program of ours calls.
#
# Sets LOCKSTEP_HAS_CUDA and, if LibTorch has NCCL and its headers are found, LOCKSTEP_HAS_NCCL. Code that includes
# headers of CUDA or NCCL links lockstep::cuda.
find_file(LOCKSTEP_TORCH_CONFIG TorchConfig.cmake HINTS ${Torch_DIR}
  PATH_SUFFIXES Torch share/cmake/Torch lib/cmake/Torch)
mark_as_advanced(LOCKSTEP_TORCH_CONFIG)
set(lockstep_torch_prefix "")
if(LOCKSTEP_TORCH_CONFIG)
  get_filename_component(Torch_DIR ${LOCKSTEP_TORCH_CONFIG} DIRECTORY)
  get_filename_component(lockstep_torch_prefix ${Torch_DIR}/../../.. ABSOLUTE)
endif()
# Whether it is a package of the system.
set(lockstep_torch_is_packaged OFF)
if("${Torch_DIR}" MATCHES "^/usr/(lib|share)/")
  set(lockstep_torch_is_packaged ON)
endif()
set(LOCKSTEP_HAS_CUDA OFF)
set(LOCKSTEP_HAS_NCCL OFF)
set(lockstep_torch_libraries ${lockstep_torch_prefix}/lib)
set(lockstep_cuda_libraries "")
if(EXISTS "${lockstep_torch_libraries}/libtorch_cuda.so")
  if(LOCKSTEP_NEEDS_CUDA)
    find_package(CUDAToolkit REQUIRED)
  elseif(NOT LOCKSTEP_CPU_ONLY)
    find_package(CUDAToolkit QUIET)
  endif()
  set(TORCH_INCLUDE_DIRS
    ${lockstep_torch_prefix}/include ${lockstep_torch_prefix}/include/torch/csrc/api/include)
  set(TORCH_LIBRARY ${lockstep_torch_libraries}/libtorch_cpu.so)
  set(TORCH_LIBRARIES ${TORCH_LIBRARY} ${lockstep_torch_libraries}/libc10.so)
  if(CUDAToolkit_FOUND AND NOT LOCKSTEP_CPU_ONLY)
    set(LOCKSTEP_HAS_CUDA ON)
    # A wheel has NVIDIA's libraries beside LibTorch, without the names that the linker looks for. Two copies of one
    # of them in a process would each have a state of its own, so LibTorch's are preferred to the toolkit's.
    file(GLOB lockstep_nvidia ${lockstep_torch_prefix}/../nvidia/cu[0-9]*/lib ${lockstep_torch_prefix}/../nvidia/cuda_runtime/lib)
    file(GLOB lockstep_cudart LIST_DIRECTORIES OFF ${lockstep_torch_libraries}/libcudart*.so*)
    foreach(folder ${lockstep_nvidia})
      file(GLOB found LIST_DIRECTORIES OFF ${folder}/libcudart.so.*)
      list(APPEND lockstep_cudart ${found})
    endforeach()
    list(APPEND lockstep_cudart CUDA::cudart)
    list(GET lockstep_cudart 0 lockstep_cudart)
    # No symbol of libtorch_cuda may be used. It adds the operations of GPUs to LibTorch when it is loaded.
    set(lockstep_cuda_libraries "-Wl,--push-state,--no-as-needed,${lockstep_torch_libraries}/libtorch_cuda.so,--pop-state"
      ${lockstep_torch_libraries}/libc10_cuda.so ${lockstep_cudart})
    find_path(LOCKSTEP_NCCL_INCLUDE_DIR nccl.h
      HINTS ${lockstep_torch_prefix}/../nvidia/nccl/include ${CUDAToolkit_INCLUDE_DIRS})
    find_library(LOCKSTEP_NCCL_LIBRARY NAMES libnccl.so.2 nccl
      HINTS ${lockstep_torch_prefix}/../nvidia/nccl/lib ${CUDAToolkit_LIBRARY_DIR})
    mark_as_advanced(LOCKSTEP_NCCL_INCLUDE_DIR LOCKSTEP_NCCL_LIBRARY)
    if(LOCKSTEP_NCCL_INCLUDE_DIR AND LOCKSTEP_NCCL_LIBRARY AND
       EXISTS ${lockstep_torch_prefix}/include/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp)
      set(LOCKSTEP_HAS_NCCL ON)
      list(APPEND lockstep_cuda_libraries ${LOCKSTEP_NCCL_LIBRARY})
    endif()
    message(STATUS "LibTorch in ${lockstep_torch_prefix}, with CUDA (toolkit ${CUDAToolkit_VERSION}), NCCL: ${LOCKSTEP_HAS_NCCL}")
  else()
    message(STATUS "LibTorch in ${lockstep_torch_prefix}: its libraries for the CPU")
  endif()
else()
  # Its package looks for this one everywhere, and would take that of another LibTorch.
  if(EXISTS "${Torch_DIR}/../Caffe2/Caffe2Config.cmake" AND NOT Caffe2_DIR)
    get_filename_component(Caffe2_DIR ${Torch_DIR}/../Caffe2 ABSOLUTE)
  endif()
  find_package(Torch REQUIRED)
endif()
# A project that uses an installed Lockstep needs the same libraries of LibTorch.
set(lockstep_cpu_only OFF)
if(EXISTS "${lockstep_torch_libraries}/libtorch_cuda.so" AND NOT LOCKSTEP_HAS_CUDA)
  set(lockstep_cpu_only ON)
endif()
if("${TORCH_CXX_FLAGS}" MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
  message(FATAL_ERROR "LibTorch in ${lockstep_torch_prefix} was built with the old ABI of C++ "
    "(_GLIBCXX_USE_CXX11_ABI=0), which does not fit the other libraries; take one with the C++11 ABI")
endif()
if(NOT TARGET lockstep::torch)
  add_library(lockstep::torch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(lockstep::torch INTERFACE ${TORCH_LIBRARIES} ${lockstep_cuda_libraries})
  target_include_directories(lockstep::torch INTERFACE ${TORCH_INCLUDE_DIRS})
  # For the headers of c10d, which is part of every LibTorch that we use.
  target_compile_definitions(lockstep::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
endif()
if(LOCKSTEP_HAS_CUDA AND NOT TARGET lockstep::cuda)
  add_library(lockstep::cuda INTERFACE IMPORTED GLOBAL)
  target_include_directories(lockstep::cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  if(LOCKSTEP_HAS_NCCL)
    target_include_directories(lockstep::cuda SYSTEM INTERFACE ${LOCKSTEP_NCCL_INCLUDE_DIR})
  endif()
endif()

# A wheel has headers of fmt among LibTorch's, of another version than the library that we link. Ours are
# found first.
find_package(fmt REQUIRED)
if(NOT TARGET lockstep::fmt)
  add_library(lockstep::fmt INTERFACE IMPORTED GLOBAL)
  target_link_libraries(lockstep::fmt INTERFACE fmt::fmt)
  if(EXISTS "${lockstep_torch_prefix}/include/fmt" AND NOT lockstep_torch_prefix STREQUAL "/usr")
    get_target_property(lockstep_fmt_folder fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
    set(lockstep_fmt_first ${CMAKE_BINARY_DIR}/lockstep-fmt)
    file(MAKE_DIRECTORY ${lockstep_fmt_first})
    file(CREATE_LINK ${lockstep_fmt_folder}/fmt ${lockstep_fmt_first}/fmt SYMBOLIC)
    target_include_directories(lockstep::fmt INTERFACE ${lockstep_fmt_first})
    set_target_properties(lockstep::fmt PROPERTIES SYSTEM OFF)
  endif()
endif()
