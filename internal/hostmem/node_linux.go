package hostmem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PreferNode asks the system to allocate pages of b from a memory node if that has free ones. Pages that
// were allocated before stay. b must begin on a page boundary. It is a hint. It fails if there is no such
// node or the system refuses.
func PreferNode(b []byte, node int) error {
	const (
		preferred = 1 // MPOL_PREFERRED
		bits      = 64
	)
	if len(b) == 0 {
		return nil
	}
	if node < 0 || node >= 16*bits {
		return fmt.Errorf("hostmem: memory node %d", node)
	}
	var mask [16]uint64
	mask[node/bits] = 1 << (node % bits)
	// The kernel reads one bit less than the given number.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), preferred,
		uintptr(unsafe.Pointer(&mask)), uintptr(len(mask)*bits+1), 0)
	if errno != 0 {
		return fmt.Errorf("hostmem: memory node %d: %w", node, errno)
	}
	return nil
}
