// Turns a fault in a kernel into a failed launch, as it is on a device.
#pragma once
#include <signal.h>
#include <time.h>

namespace cpu_cuda {

// Installed for the time of a launch. AddressSanitizer has handlers of its own, which say more.
class FaultHandlers {
 public:
  FaultHandlers();
  ~FaultHandlers();

 private:
  struct sigaction old_[4];
  stack_t old_stack_;
};

// Ends a launch that takes too much processor time: a kernel may wait for what never comes.
class Watchdog {
 public:
  Watchdog();
  ~Watchdog();

 private:
  struct sigaction old_;
  timer_t timer_;
  bool armed_ = false;
};

}  // namespace cpu_cuda
