package kerneltest

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Guarded returns n bytes at the end of a mapping: reading beyond them faults.
func Guarded(t *testing.T, n int) []byte {
	t.Helper()
	page := unix.Getpagesize()
	size := (n + page - 1) / page * page
	region, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(region[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(region); err != nil {
			t.Error(err)
		}
	})
	return region[size-n : size : size]
}

// GuardedFloats returns n floats at the end of a mapping.
func GuardedFloats(t *testing.T, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(Guarded(t, 4*n)))), n)
}

// GuardedWords returns n words at the end of a mapping.
func GuardedWords(t *testing.T, n int) []uint32 {
	t.Helper()
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(Guarded(t, 4*n)))), n)
}
