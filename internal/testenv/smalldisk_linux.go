package testenv

import (
	"fmt"
	"syscall"
	"testing"
)

// SmallDisk returns a folder on a file system of its own with room for so many bytes, until the test ends. It needs
// the right to mount one ("mount").
func SmallDisk(t testing.TB, bytes int64) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_NODEV|syscall.MS_NOSUID, fmt.Sprintf("size=%d", bytes))
	Need(t, "mount", err == nil, fmt.Sprintf("the right to mount a small file system: %v", err))
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}
