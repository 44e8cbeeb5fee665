package hostmem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// reserve returns n bytes of address space on a huge-page boundary, which may not be used until commit.
// It takes no memory, and does not count as memory that the process may take.
func reserve(n int) ([]byte, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(n)+HugePage, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	region, err := cut(unsafe.Slice((*byte)(p), n+HugePage), n)
	if err == nil {
		adviseHuge(region)
	}
	return region, err
}

// commit makes reserved address space usable. It contains zeros.
func commit(b []byte) error { return unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE) }
