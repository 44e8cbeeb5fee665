package topology

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// affinity are the processors that the process is allowed on; nil where the system does not
// say.
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

// Pin keeps the calling thread on the processors given. The goroutine is locked to its
// thread, or else the thread's next goroutine is the one that is kept.
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
