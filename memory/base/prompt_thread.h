// Threads that mostly wait, beside threads that always compute.
#pragma once

namespace spillway {

// Makes the calling thread run as soon as its wait is over, even when all processors are busy: its turns, which are short anyway,
// are declared as short. Otherwise Linux lets a computing thread finish its turn of 2 to 4 ms first, and a drive that needs its
// next request stands still for as long. This needs no privilege and takes no more processor time. Kernels before 6.12 do not
// know the request: there nothing changes, and nothing is reported.
void make_thread_prompt() noexcept;

}  // namespace spillway
