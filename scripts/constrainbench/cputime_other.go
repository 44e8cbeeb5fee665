//go:build !unix

package main

import "time"

var start = time.Now()

// cpuTime is the time since the start, as the CPU time is not known here.
func cpuTime() time.Duration { return time.Since(start) }
