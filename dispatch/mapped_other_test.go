//go:build !linux

package dispatch_test

import "testing"

// mapped is known on Linux only.
func mapped(*testing.T, string) (kib int, known bool) { return 0, false }
