package main

import (
	"os"
	"runtime"
)

// leaveRoom lets Go run one more goroutine than threads that compute: one that accepts a request,
// sends a token or handles a signal. Otherwise these wait until the scheduler polls the network,
// which it does every 10 ms while all processors compute. GOMAXPROCS in the environment takes
// precedence.
func leaveRoom(threads int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) <= threads {
		runtime.GOMAXPROCS(threads + 1)
	}
}
