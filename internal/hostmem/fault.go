package hostmem

import (
	"runtime"
	"runtime/debug"
)

// Guard calls f, which reads mapped memory, and returns what it panicked with, nil if it did not. A
// page that cannot be read, since its file was cut short or its device failed, is such a panic and
// does not end the process; [FaultAddress] tells it from others. It covers the calling goroutine
// only.
func Guard(f func()) (panicked any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { panicked = recover() }()
	f()
	return nil
}

// FaultAddress is the address of the memory that could not be read, if that is what panicked, a
// value that was recovered, stands for.
func FaultAddress(panicked any) (address uintptr, ok bool) {
	fault, ok := panicked.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok {
		return 0, false
	}
	return fault.Addr(), true
}
