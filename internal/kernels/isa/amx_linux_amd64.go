//go:build !purego

package isa

import (
	"syscall"
)

// TilesAllowed asks the operating system for permission to use AMX's tile registers, and reports
// whether it has been granted. Permission holds for the whole process until it exits. The
// registers are empty again when a kernel returns.
func TilesAllowed() bool {
	const (
		requestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData          = 18
	)
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
}
