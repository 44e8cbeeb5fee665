//go:build !linux

package testenv

import "testing"

// SmallDisk skips the test on this system.
func SmallDisk(t testing.TB, bytes int64) string {
	t.Helper()
	Need(t, "mount", false, "a system on which a test may mount a small file system")
	return ""
}
