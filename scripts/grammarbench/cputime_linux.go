package main

import (
	"syscall"
	"time"
	"unsafe"
)

// cpuTime is the time that the thread has computed, which other processes do not change.
func cpuTime() time.Duration {
	const threadClock = 3
	var t syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano())
}
