//go:build linux

package hostmem

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"
)

// TestGuardTellsAFaultFromAPanic: reading a mapping beyond the end of a file that was cut is a
// fault with its address, and another panic is itself.
func TestGuardTellsAFaultFromAPanic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, 8*os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Map(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Release()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	var sink byte
	at := 3 * os.Getpagesize()
	panicked := Guard(func() { sink = m.Bytes()[at] })
	if address, ok := FaultAddress(panicked); !ok || address != uintptr(unsafe.Pointer(&m.Bytes()[at])) {
		t.Errorf("a page that is gone: %v, %v (%d)", panicked, ok, sink)
	}
	panicked = Guard(func() { panic("other") })
	if _, ok := FaultAddress(panicked); ok || panicked != "other" {
		t.Errorf("another panic: %v", panicked)
	}
	if panicked = Guard(func() {}); panicked != nil {
		t.Errorf("no panic: %v", panicked)
	}
}
