# Finds LibTorch, 1.13 or newer, and fmt. LibTorch is Debian's, or the one that CMAKE_PREFIX_PATH names; for
# the one inside Python's wheel that is
#   $(python3 -c "import torch; print(torch.utils.cmake_prefix_path)")
#
# A LibTorch that was built with CUDA has a CMake package that works only where the CUDA toolkit is installed.
# Without the toolkit, or with LOCKSTEP_CPU_ONLY, its libraries for the CPU are linked directly.
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
set(lockstep_cpu_only OFF)
if(EXISTS "${lockstep_torch_prefix}/lib/libtorch_cuda.so")
  if(NOT LOCKSTEP_CPU_ONLY)
    find_package(CUDAToolkit QUIET)
  endif()
  if(NOT CUDAToolkit_FOUND)
    set(lockstep_cpu_only ON)
  endif()
endif()
if(lockstep_cpu_only)
  set(TORCH_INCLUDE_DIRS
    ${lockstep_torch_prefix}/include ${lockstep_torch_prefix}/include/torch/csrc/api/include)
  set(TORCH_LIBRARY ${lockstep_torch_prefix}/lib/libtorch_cpu.so)
  set(TORCH_LIBRARIES ${TORCH_LIBRARY} ${lockstep_torch_prefix}/lib/libc10.so)
  message(STATUS "LibTorch in ${lockstep_torch_prefix}: its libraries for the CPU")
else()
  # Lockstep compiles no CUDA code. Without this list LibTorch's package would look for a GPU on this machine.
  if(CUDAToolkit_FOUND AND NOT DEFINED TORCH_CUDA_ARCH_LIST)
    set(TORCH_CUDA_ARCH_LIST 8.0)
  endif()
  # Its package looks for this one everywhere, and would take that of another LibTorch.
  if(EXISTS "${Torch_DIR}/../Caffe2/Caffe2Config.cmake" AND NOT Caffe2_DIR)
    get_filename_component(Caffe2_DIR ${Torch_DIR}/../Caffe2 ABSOLUTE)
  endif()
  find_package(Torch REQUIRED)
endif()
if("${TORCH_CXX_FLAGS}" MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
  message(FATAL_ERROR "LibTorch in ${lockstep_torch_prefix} was built with the old ABI of C++ "
    "(_GLIBCXX_USE_CXX11_ABI=0), which does not fit the other libraries; take one with the C++11 ABI")
endif()
if(NOT TARGET lockstep::torch)
  add_library(lockstep::torch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(lockstep::torch INTERFACE ${TORCH_LIBRARIES})
  target_include_directories(lockstep::torch INTERFACE ${TORCH_INCLUDE_DIRS})
  # For the headers of c10d, which is part of every LibTorch that we use.
  target_compile_definitions(lockstep::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
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
