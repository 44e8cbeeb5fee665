//go:build !purego

package kernels

import "syscall"

// tilesAllowed asks the kernel for the tile registers, which it gives to the whole
// process and for good. They are empty again when a kernel returns.
func tilesAllowed() bool {
	const (
		requestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData          = 18
	)
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
}
