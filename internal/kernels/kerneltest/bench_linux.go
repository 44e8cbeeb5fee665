package kerneltest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Uncached returns the memory for BesideReads.
func Uncached(b *testing.B) []byte {
	data, err := unix.Mmap(-1, 0, BenchWeights, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Munmap(data) })
	_ = unix.Madvise(data, unix.MADV_HUGEPAGE)
	for i := range data {
		data[i] = 0x3c
	}
	return data
}
