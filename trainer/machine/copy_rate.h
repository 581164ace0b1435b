// How fast this machine copies from one part of its memory to another, by one thread.
#pragma once

namespace spillway {

// Bytes a second, each counted once. Takes some tens of milliseconds the first time.
double measured_copy_bytes_per_s();

}  // namespace spillway
