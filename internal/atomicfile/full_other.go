//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package atomicfile

// IsFull reports whether a write failed because the disk is full, which is unknown on this
// system.
func IsFull(error) bool { return false }
