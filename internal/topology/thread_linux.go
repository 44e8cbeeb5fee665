package topology

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// affinity returns the processors that the process may run on, or nil if the system does not say.
func affinity() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var out []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			out = append(out, i)
		}
	}
	return out
}

// Yield lets another thread that waits for the processor of the calling thread run. It returns at
// once if there is none.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// Pin restricts the calling thread to the given processors. Lock the goroutine to its thread first,
// else the restriction stays with whatever goroutine runs on the thread next.
func Pin(ids []int) error {
	var set unix.CPUSet
	for _, id := range ids {
		set.Set(id)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("topology: a thread on processors %v: %w", ids, err)
	}
	return nil
}
