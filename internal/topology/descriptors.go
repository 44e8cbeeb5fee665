//go:build unix

package topology

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// FreeDescriptors returns how many more files the process may open under its limit (ulimit -n), as far as the system
// says.
func FreeDescriptors() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	open, _ := os.ReadDir("/dev/fd") // where there is none, none are counted
	return max(int(limit.Cur)-len(open), 0)
}
