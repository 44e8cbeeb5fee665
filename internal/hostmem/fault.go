package hostmem

import (
	"runtime"
	"runtime/debug"
)

// Guard calls f, which reads mapped memory, and returns the value of its panic, or nil. A page that
// cannot be read, because its file was cut short or its device failed, is a panic that [FaultAddress]
// recognises. Guard covers the calling goroutine only.
func Guard(f func()) (panicked any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { panicked = recover() }()
	f()
	return nil
}

// FaultAddress returns the address of the memory that could not be read. ok is false if panicked, a
// recovered value, is not a fault.
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
