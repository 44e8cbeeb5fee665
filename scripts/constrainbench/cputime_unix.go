//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime is the CPU time of the process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
