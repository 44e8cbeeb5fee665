package main

import (
	"os"
	"runtime"
)

// leaveRoom lets Go run one goroutine beside so many threads that compute: the one that takes a
// request, hands on a token or has a signal. Without it these wait until the scheduler looks at
// the network, once in 10 ms where all processors compute. What the user says in GOMAXPROCS
// stands.
func leaveRoom(threads int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) <= threads {
		runtime.GOMAXPROCS(threads + 1)
	}
}
