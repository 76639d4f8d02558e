# The environment in which a build with sanitizers runs its tests. Without sanitizers it is empty.
#
# lockstep_sanitizer_environment(variable): sets the variable to the tests' environment, for the
# property ENVIRONMENT. The suppressions are in scripts/sanitizers, each line with its reason.
# LOCKSTEP_SLOWDOWN says how many times longer than usual a test may take.
set(LOCKSTEP_SLOWDOWN 1)
if(LOCKSTEP_SANITIZE MATCHES "address")
  set(LOCKSTEP_SLOWDOWN 4)
elseif(LOCKSTEP_SANITIZE MATCHES "thread")
  set(LOCKSTEP_SLOWDOWN 10)
endif()

function(lockstep_sanitizer_environment variable)
  set(folder ${PROJECT_SOURCE_DIR}/scripts/sanitizers)
  set(environment "")
  if(LOCKSTEP_SANITIZE MATCHES "address")
    # LibTorch is not instrumented, so a container that it changes has no annotations.
    list(APPEND environment
      ASAN_OPTIONS=detect_leaks=1:detect_container_overflow=0:detect_stack_use_after_return=1
      LSAN_OPTIONS=suppressions=${folder}/lsan.supp:print_suppressions=0)
  endif()
  if(LOCKSTEP_SANITIZE MATCHES "undefined")
    list(APPEND environment
      UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:suppressions=${folder}/ubsan.supp)
  endif()
  if(LOCKSTEP_SANITIZE MATCHES "thread")
    # Workers are forked while threads run, and must continue (die_after_fork=0). ThreadSanitizer
    # does not see OpenMP's barriers, because libgomp is not instrumented. With one OpenMP thread,
    # however many a test asks for, this gives no false reports. The calls of libraries that tsan.supp
    # names are ignored, and a mutex that such a call has locked looks unlocked (report_mutex_bugs=0).
    list(APPEND environment
      TSAN_OPTIONS=die_after_fork=0:halt_on_error=1:second_deadlock_stack=1:report_mutex_bugs=0:suppressions=${folder}/tsan.supp
      OMP_NUM_THREADS=1 OMP_THREAD_LIMIT=1)
  endif()
  set(${variable} "${environment}" PARENT_SCOPE)
endfunction()
