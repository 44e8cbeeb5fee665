//go:build !linux

package hostmem

import "os"

// Extend makes a file n bytes long.
func Extend(f *os.File, n int64) error { return f.Truncate(n) }
