#include "fault.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include "block.h"
#include "memory.h"
#include "sanitizer.h"

namespace cpu_cuda {

namespace {

constexpr int kSignals[4] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
alignas(16) char handler_stack[64 << 10];

void on_fault(int signal, siginfo_t* info, void*) {
  BlockRunner& runner = BlockRunner::instance();
  if (!runner.running()) {  // not the kernel's fault: let it happen again, unhandled
    ::signal(signal, SIG_DFL);
    return;
  }
  std::string what;
  if (signal == SIGILL) {
    what =
        "a check that the compiler put in has failed: a misaligned access, an index outside an "
        "array, or a shift by more than the width (the sanitizers name the line)";
  } else if (signal == SIGFPE) {
    what = "integer division by zero";
  } else if (runner.is_stack(info->si_addr)) {
    what = "stack overflow";
  } else {
    what = "illegal memory access: " + DeviceMemory::instance().describe(info->si_addr);
  }
  // The kernel's thread is never resumed, so this leaves the handler for good: SA_NODEFER keeps
  // the signal unblocked.
  runner.fail(what);
}

double time_limit = 60;

void on_time_up(int) { BlockRunner::instance().time_is_up(time_limit); }

}  // namespace

FaultHandlers::FaultHandlers() {
  if (address_sanitizer()) return;
  stack_t stack{};
  stack.ss_sp = handler_stack;
  stack.ss_size = sizeof handler_stack;
  sigaltstack(&stack, &old_stack_);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int i = 0; i < 4; ++i) sigaction(kSignals[i], &action, &old_[i]);
}

FaultHandlers::~FaultHandlers() {
  if (address_sanitizer()) return;
  for (int i = 0; i < 4; ++i) sigaction(kSignals[i], &old_[i], nullptr);
  sigaltstack(&old_stack_, nullptr);
}

Watchdog::Watchdog() {
  // Of this thread, and delivered to it: the handler switches away from the fibre it finds.
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGPROF;
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) != 0) return;
  struct sigaction action {};
  action.sa_handler = on_time_up;
  action.sa_flags = SA_NODEFER | SA_RESTART;
  sigaction(SIGPROF, &action, &old_);
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(time_limit);
  when.it_value.tv_nsec = static_cast<long>((time_limit - std::floor(time_limit)) * 1e9);
  timer_settime(timer_, 0, &when, nullptr);
  armed_ = true;
}

Watchdog::~Watchdog() {
  if (!armed_) return;
  timer_delete(timer_);
  sigaction(SIGPROF, &old_, nullptr);
}

}  // namespace cpu_cuda

extern "C" void cpu_cuda_set_time_limit(double seconds) { cpu_cuda::time_limit = seconds; }
