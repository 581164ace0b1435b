// Threads that mostly wait, beside threads that always compute.
#pragma once

namespace spillway {

// Has the calling thread run as soon as what it waits for is there, also where all processors are busy: its turns, which are
// short anyway, are declared as short. Otherwise Linux lets a computing thread finish its turn first, 2 to 4 ms, and a drive that
// needs its next request stands still for as long. No privilege is needed, and no more processor time is taken. Kernels before
// 6.12 know no such wish: nothing changes there, and nothing is said.
void make_thread_prompt() noexcept;

}  // namespace spillway
