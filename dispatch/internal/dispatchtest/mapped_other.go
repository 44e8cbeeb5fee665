//go:build !linux

package dispatchtest

import (
	"testing"
)

// Mapped is implemented on Linux only.
func Mapped(*testing.T, string) (kib int, known bool) { return 0, false }
