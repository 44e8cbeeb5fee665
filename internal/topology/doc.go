// Package topology reads which processors and how much memory this process may use, and decides
// where its threads run.
//
// A [CPU] is one hardware thread, with its core and its memory node. A [Node] is memory that some
// processors have near. A [Machine] holds the processors that the process may run on, the nodes,
// and the CPU quota of its control groups. A [MemoryGroup] is a control group with a memory limit.
//
// [Here] reads this machine, and [Read] any file tree with /proc and /sys. [Machine.Threads] is the
// default number of compute threads. [Machine.Places] assigns a processor to each thread,
// [Machine.Near] orders other threads by distance, and [Machine.Home] finds the node for memory
// that a thread reads. [Memory] and [MemoryGroups] read memory and its limits, [MemoryStall] how
// long it was waited for.
//
// Threads of one core share its arithmetic units and caches, so one thread per core is enough. The
// package does not know what the threads compute. It is the only home of control-group files.
package topology
